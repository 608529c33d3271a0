"""Laws of a streamed body that breaks: the exact content or an error, never another content."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..adapters.origin import Answer, Origin
from ..adapters.test_resume_streamed import CLIENTS, POLICY, read

CONTENT = bytes(number * number % 251 for number in range(3_000))
CODED = zlib.compress(CONTENT)  # of random-looking bytes: not much shorter

cuts = st.one_of(st.none(), st.integers(0, 3_000), st.sampled_from([0, 1, -1, -2, -5, -6]))
honest = st.builds(Answer, cuts, rst=st.booleans())
cut_heads = st.builds(lambda at: Answer(head_cut=at), st.integers(0, 60))
liars = st.sampled_from(
    [
        Answer(ranges=False),
        Answer(content=CONTENT[::-1], lines={"ETag": '"v2"'}),
        Answer(content=CONTENT[::-1], lines={"ETag": 'W/"v1"'}),
        Answer(content=CONTENT[::-1], ranges=False),
        Answer(content=CONTENT[:1_000]),  # a shorter one under the same strong validator
        Answer(content=CONTENT[:1_000][::-1], lines={"ETag": None}),
        Answer(shift=1, lines={"Content-Range": "bytes 1-2999/3000"}),
        Answer(lines={"Content-Range": "bytes */3000"}),
        Answer(lines={"Content-Encoding": "gzip"}, content=CONTENT[::-1]),
        Answer(status=503),
        Answer(status=404),
        Answer(status=416),
    ]
)


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS, ids=[client.name for client in CLIENTS])
@given(
    first=honest,
    others=st.lists(st.one_of(honest, honest, cut_heads, liars), max_size=6),
    way=st.integers(0, 7),
    coded=st.booleans(),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_exact_content_or_an_error(client, first, others, way, coded):
    """Any sequence of cuts and answers, whichever way it is read."""
    way = list(client.ways)[way]
    if way == "iter_lines":
        way = "iter_content"  # what it gives depends on where pieces end, without us too
    content, coding = (CODED, "deflate") if coded else (CONTENT, None)
    answers = [first, *others]
    if coded:  # liars lie about what is plain
        answers = [answer for answer in answers if answer.content is None]
    with Origin(content, answers, coding=coding) as origin:
        ours = client(POLICY, gate=None)
        got, error = read(client, ours.get(origin.url), way)
        ours.close()
    assert CONTENT.startswith(got)
    assert error is not None or got == CONTENT
