"""The download benchmark runs to its end, and what it counts exactly is what is promised."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import forbear

DOWNLOAD = Path(__file__).parent.parent / "benchmarks" / "download.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not DOWNLOAD.exists(), reason="benchmarks/ is not part of an installed package"
    ),
    pytest.mark.skipif(not hasattr(os, "sendfile"), reason="its server sends files"),
]


def test_a_broken_download_arrives_with_one_request_more_than_it_broke():
    """Whatever client of the family: sha256 equal, requests = cuts + 1, and no byte sent twice."""
    source = str(Path(forbear.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, str(DOWNLOAD), "--quick", "--json", "-", "--rows", "httpx"],
        capture_output=True,
        text=True,
        timeout=300,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]),
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    for name in ("forbear, httpx", "forbear, httpx async", "forbear, httpx2"):
        row = report["broken"][name]
        assert row["arrived"]
        assert row["error"] is None
        assert row["requests"] == len(report["cuts"]) + 1
        # A reset may take with it what was sent and not yet read: that much is sent once more.
        assert 1 <= row["bytes_ratio"] < 2
        assert set(report["unbroken"][name]) == {"best", "median", "ratio", "cpu", "cpu_ratio"}
    assert not report["broken"]["httpx"]["arrived"]
