"""``forbear dashboards``: the files are written and named."""

from forbear.telemetry import assets


def test_it_writes_the_files_and_names_them(tmp_path, command):
    place = tmp_path / "new" / "one"
    status, out, _ = command("dashboards", "--out", str(place))
    assert status == 0
    assert sorted(out.splitlines()) == sorted(map(str, place.iterdir()))
    assert {path.name for path in place.iterdir()} >= {assets.DASHBOARD, assets.RULES}


def test_where_it_cannot_write_it_says_so(tmp_path, mistake):
    (tmp_path / "file").write_text("")
    assert ": cannot write into " in mistake(
        "dashboards", "--out", str(tmp_path / "file" / "below")
    )
