"""Look at an installed wheel in an environment that holds nothing else."""

import subprocess
import sys
import sysconfig
from importlib.metadata import distributions, entry_points, files, metadata
from pathlib import Path
from tempfile import TemporaryDirectory


def main() -> None:
    import forbear

    third_party = sorted(
        {name.partition(".")[0] for name in sys.modules}
        & {"httpx", "httpx2", "aiohttp", "requests", "urllib3", "anyio"}
    )
    assert not third_party, f"import forbear loads {third_party}"
    for name in forbear.__all__:
        getattr(forbear, name)
    others = sorted(
        found.name
        for found in distributions()
        if found.name not in ("forbear", "pip", "setuptools")
    )
    assert not others, f"this environment is not bare: {others}"
    for library in (
        "httpx",
        "httpx2",
        "aiohttp",
        "requests",
        "urllib3",
        "redis",
        "telemetry.prometheus",
        "telemetry.otel",
    ):
        extra = library.rpartition(".")[2]
        try:
            __import__(f"forbear.{library}")
        except ImportError as error:
            assert f"pip install '.[{extra}]' in a checkout" in str(error), error
        else:
            raise AssertionError(f"forbear.{library} was imported without {extra}")
    wheel = {str(path) for path in files("forbear") or () if path.suffix != ".pyc"}
    assert "forbear/py.typed" in wheel
    strays = [
        path
        for path in wheel
        if not path.startswith(("forbear/", "forbear-", "../../../bin/forbear"))
    ]
    assert not strays, f"the wheel brings {strays}"
    (plugin,) = entry_points(group="pytest11")
    assert (plugin.name, plugin.value) == ("forbear", "forbear.pytest_plugin"), plugin
    about = metadata("forbear")
    assert about["License-Expression"] == "MIT", about["License-Expression"]
    assert any(path.endswith("/licenses/LICENSE") for path in wheel), "the wheel has no license"
    command = Path(sysconfig.get_path("scripts")) / "forbear"
    for option, expected in (("--help", "demo"), ("--version", f"forbear {about['Version']}")):
        said = subprocess.run([command, option], capture_output=True, text=True, check=True).stdout
        assert expected in said, said
    demo = subprocess.run([command, "demo"], capture_output=True, text=True, check=False)
    assert demo.returncode == 2, demo
    assert "pip install '.[httpx,httpx2,aiohttp,requests,urllib3]'" in demo.stderr, demo
    explained = subprocess.run([command, "explain"], capture_output=True, text=True, check=False)
    assert explained.returncode == 0, explained
    with TemporaryDirectory() as directory:
        written = subprocess.run(
            [command, "dashboards", "--out", directory], capture_output=True, text=True, check=False
        )
        assert written.returncode == 0, written
        assert len(list(Path(directory).iterdir())) == 2, written
    print(f"{len(wheel)} files, no dependencies; without a client: {demo.stderr.splitlines()[0]}")


if __name__ == "__main__":
    main()
