"""forbear dashboards: the files that ship, written where they are wanted."""

import json

import pytest

from forbear.telemetry import assets
from forbear.tools.cli import main


def test_it_writes_the_files_and_names_them(tmp_path, capsys):
    into = tmp_path / "monitoring"
    assert main(["dashboards", "--out", str(into)]) == 0
    named = capsys.readouterr().out.splitlines()
    assert named == [str(into / assets.DASHBOARD), str(into / assets.RULES)]
    assert json.loads((into / assets.DASHBOARD).read_text())["title"] == "forbear"
    assert "ForbearRetryStorm" in (into / assets.RULES).read_text()


def test_without_a_directory_it_is_this_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["dashboards"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {assets.DASHBOARD, assets.RULES}


def test_a_directory_that_cannot_be_is_a_mistake_and_no_traceback(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["dashboards", "--out", str(tmp_path / "file" / "below")]) == 2
    assert "cannot write into" in capsys.readouterr().err


def test_its_help_teaches_by_example(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["dashboards", "--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    assert "forbear dashboards --out" in text
    assert "rule_files" in text
