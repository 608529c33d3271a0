"""Every client behind one vocabulary: a library in one flavour is a lane.

A test asks for ``adapter`` and is run over each lane; which ones is decided in ``parametrize``, and
nowhere else:

- full lanes (httpx sync, httpx asyncio, aiohttp, urllib3) run every test;
- the others share their code with these, so httpx2 sync, httpx2 on trio and requests run the tests
  of conformance and bodies, those marked ``smoke``: one for each promise, and one for each exit of
  the loop (success, give-up, the caller's exception, cancellation while sending and while sleeping,
  closed while waiting), and requests what names it;
- ``-m smoke`` runs those on these lanes, ``-k httpx2`` all that httpx2 runs;
- httpx on trio and httpx2 on asyncio, the same code once more, run where a test names them;
- ``pytest.mark.adapters(*words)`` takes the lanes that have all these words, as does
  ``pytest.mark.smoke(*words)``;
- ``pytest.mark.lanes(*names)`` takes these, full or not.

Where libraries rightly differ, a test asks for a word (and clients have no gate unless a test gives
one: its retries would else depend on those before; test_holding.py is about the gate):

| word | who has it | why the others have not |
| --- | --- | --- |
| httpx-family | httpx, httpx2 | per-request ``extensions``, timeouts to be asked for, any transport below |
| async, sync, httpx … | that flavour or library | |
| status-errors | httpx, httpx2, requests | the others' have no response |
| blank-headers | all but requests | requests refuses a header value that begins with a space |
| stacks | all but urllib3 | a pool manager has no inner one |
| plain-bodies | all but aiohttp | a plain function cannot read a body of its responses |
| prefetches | httpx, httpx2, aiohttp | a body is loaded, or the caller's to read |

urllib3 puts MaxRetryError around whatever failed before the body, so its errors of the wire all
have that name.
"""

from .aiohttp import AiohttpLane
from .httpx import HttpxLane
from .lane import ORIGIN, URL
from .urllib3 import RequestsLane, Urllib3Lane

__all__ = ["LANES", "ORIGIN", "URL", "lane_of", "parametrize"]

LANES = [
    *[
        HttpxLane(name, flavour)
        for name in ("httpx", "httpx2")
        for flavour in ("sync", "asyncio", "trio")
    ],
    RequestsLane(),
    Urllib3Lane(),
    AiohttpLane(),
]
NOT_FULL = ("httpx2-sync", "httpx2-trio", "requests")
ON_ALL = ("test_conformance", "test_bodies")  # what may be sent again, and whole or not at all


def lane_of(name):
    (found,) = [lane for lane in LANES if lane.id == name]
    return found


def parametrize(metafunc):
    """Run a test that asks for ``adapter`` over its lanes."""
    marks = {"adapters": [], "lanes": [], "smoke": []}
    for mark in metafunc.definition.iter_markers():
        marks.get(mark.name, []).extend(mark.args or [mark.name])
    words, names = {*marks["adapters"], *marks["smoke"]} - {"smoke"}, marks["lanes"]
    wanted = {lane.id for lane in LANES if lane.is_full} | ({"requests"} & words)
    if marks["smoke"] or metafunc.module.__name__.rpartition(".")[2].startswith(ON_ALL):
        wanted.update(NOT_FULL)
    chosen = [lane_of(name) for name in names] or [
        lane for lane in LANES if words <= lane.words and lane.id in wanted
    ]
    assert chosen, f"no full lane has the words {words}: is the test to be marked smoke?"
    metafunc.parametrize("adapter", chosen, ids=[lane.id for lane in chosen])
