"""Run the tests of the SDKs: each in an environment that holds the SDK's newest release, or an
older one.

    python tests/sdk/run.py                                  # all of them
    python tests/sdk/run.py --only openai,anthropic,stripe,PyGithub
    python tests/sdk/run.py -- -x -k streaming               # the rest is pytest's

The environments stay under $FORBEAR_SDK_ENVIRONMENTS (default: forbear-sdk in the system's
directory for temporary files); delete them to test newer releases. forbear is this clone's.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ["pytest>=9", "pytest-timeout>=2.3", "pytest-xdist>=3.6", "anyio[trio]>=4.4"]

# The newest releases get along in one environment. openai, anthropic and huggingface_hub moved from
# httpx to httpx2 with a major release; what is still in many lock files is tested as well.
ENVIRONMENTS = {
    "newest": {
        "openai": ["openai>=3", "httpx"],
        "anthropic": ["anthropic>=2"],
        "stripe": ["stripe>=16", "requests", "httpx"],
        "PyGithub": ["PyGithub>=2.10", "requests"],
        "kubernetes": ["kubernetes>=37"],
        "elasticsearch": ["elasticsearch>=9", "requests"],
        "google-auth": ["google-auth>=2.62", "requests"],
        "huggingface_hub": ["huggingface_hub>=2"],
        "twilio": ["twilio>=9", "requests"],
        "google-genai": ["google-genai>=3.4", "httpx2"],
        "mcp": ["mcp>=2.3", "httpx2"],
        "pydantic-ai": ["pydantic-ai-slim[openai]>=2.68", "httpx2"],
    },
    "httpx": {
        "openai": ["openai>=2,<3"],
        "anthropic": ["anthropic<1"],
        "huggingface_hub": ["huggingface_hub>=1,<2"],
    },
}
DISTRIBUTIONS = {"pydantic-ai": "pydantic-ai-slim"}  # without the SDKs of all other vendors
SDKS = tuple(ENVIRONMENTS["newest"])


def main() -> int:
    arguments = parse()
    base = Path(
        os.environ.get("FORBEAR_SDK_ENVIRONMENTS") or f"{tempfile.gettempdir()}/forbear-sdk"
    )
    began = time.monotonic()
    worst = 0
    for name, offered in ENVIRONMENTS.items():
        chosen = [sdk for sdk in offered if sdk in arguments.only]
        if chosen:
            python = environment(base, name, [each for sdk in chosen for each in offered[sdk]])
            print(f"\n=== {name}: {versions(python, chosen)}", flush=True)
            pages = ["tests/sdk/test_pages.py"] if name == "newest" else []
            worst = max(worst, run_tests(base, python, chosen, [*pages, *arguments.pytest]))
    print(f"\n{'FAILED' if worst else 'passed'} in {time.monotonic() - began:.0f} s")
    return worst


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default=",".join(SDKS), help=f"some of {','.join(SDKS)}")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, after --")
    arguments = parser.parse_args()
    by_name = {sdk.lower(): sdk for sdk in SDKS}
    asked = [name.strip() for name in arguments.only.split(",")]
    unknown = [name for name in asked if name.lower() not in by_name]
    if unknown:  # a typing error would make a check that checks nothing
        parser.error(f"there is no test of {', '.join(unknown)}; there are {', '.join(SDKS)}")
    arguments.only = [by_name[name.lower()] for name in asked]
    return arguments


def environment(base: Path, name: str, wanted: list[str]) -> Path:
    """Make the environment, or add to it what is missing; return its Python."""
    home = base / f"{name}-{sys.implementation.name}{sys.version_info[0]}.{sys.version_info[1]}"
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = home / "installed.txt"  # written last: what is listed is there
    if not stamp.exists():
        # Its own pip would take longer than the rest of it.
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", home], check=True)
        stamp.write_text("")
    installed = stamp.read_text().split()
    missing = [each for each in dict.fromkeys([*TESTS, *wanted]) if each not in installed]
    if missing:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
        # All of it at once, so that what gets along is found for all; compiled when it is imported.
        every = [*installed, *missing]
        subprocess.run([*pip, "install", "--quiet", "--no-compile", *every], check=True)
        subprocess.run([*pip, "check"], check=True, stdout=subprocess.DEVNULL)
        stamp.write_text("\n".join(every))
    return python


def versions(python: Path, sdks: list[str]) -> str:
    asked = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    command = [python, "-c", asked, *(DISTRIBUTIONS.get(sdk, sdk) for sdk in sdks)]
    found = subprocess.check_output(command, text=True).split()
    return ", ".join(f"{sdk} {number}" for sdk, number in zip(sdks, found, strict=True))


def run_tests(base: Path, python: Path, sdks: list[str], more: list[str]) -> int:
    files = [f"tests/sdk/test_{sdk.lower().replace('-', '_')}.py" for sdk in sdks]
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    variables["PYTHONPYCACHEPREFIX"] = str(base / "compiled")  # nothing is left in the clone
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", *files, *more]
    return subprocess.run(command, check=False, cwd=ROOT, env=variables).returncode


if __name__ == "__main__":
    sys.exit(main())
