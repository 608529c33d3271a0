"""``forbear dashboards``: the files are written and named."""

from forbear.cli import main
from forbear.telemetry import assets


def test_it_writes_the_files_and_names_them(tmp_path, capsys):
    place = tmp_path / "new" / "one"
    assert main(["dashboards", "--out", str(place)]) == 0
    named = capsys.readouterr().out.splitlines()
    assert sorted(named) == sorted(str(path) for path in place.iterdir())
    assert {path.name for path in place.iterdir()} >= {assets.DASHBOARD, assets.RULES}


def test_without_a_directory_it_writes_nothing_and_says_what_to_give(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["dashboards"]) == 2
    assert f"--out DIR writes {assets.DASHBOARD} and {assets.RULES}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_is_a_mistake_and_no_traceback(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["dashboards", "--out", str(tmp_path / "file" / "below")]) == 2
    err = capsys.readouterr().err
    assert err.startswith("forbear dashboards: cannot write into ")
    assert err.count("\n") == 1
