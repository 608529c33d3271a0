"""The parts of a bounded read that few servers reach."""

import gzip
import sys

import httpx
import httpx2
import pytest

import forbear.httpx
import forbear.httpx2
from forbear import FailureKind
from forbear.engine.inspection import MOST_BYTES, BodyNotShown, inflated, undone


def test_what_is_no_gzip_stays_as_it_is():
    assert inflated(b"plain") == b"plain"
    assert inflated(gzip.compress(b"first") + b"junk") == b"first"


def test_zstd_is_undone_by_whatever_the_client_has_loaded(monkeypatch):
    zstd = pytest.importorskip("backports.zstd")
    two = zstd.compress(b"first") + zstd.compress(b"x" * 10_000_000)
    monkeypatch.delitem(sys.modules, "zstandard", raising=False)
    assert undone("zstd", two)[:5] == b"first"
    assert len(undone("zstd", two)) == MOST_BYTES + 1
    with pytest.raises(BodyNotShown):
        undone("zstd", b"junk")
    monkeypatch.delitem(sys.modules, "backports.zstd")
    assert undone("zstd", two) == two, "nobody can undo it"


@pytest.mark.parametrize(("library", "ours"), [(httpx, forbear.httpx), (httpx2, forbear.httpx2)])
def test_classify_says_what_an_exception_means(library, ours):
    assert ours.classify(library.ReadTimeout("late")).kind is FailureKind.READ_TIMEOUT
    with library.Client() as client:
        assert not ours.is_wrapped(client)
    with pytest.raises(AttributeError, match="wrap"):
        _ = ours.mount
