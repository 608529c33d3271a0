"""``forbear get``: what it writes, what it says, and its exit status, against a server that
misbehaves.
"""

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import forbear
from forbear.testing import FaultServer
from forbear.tools.cli import main
from forbear.tools.cli.part import Part

SIZE = 200_000
WHOLE = (b"0123456789abcdef" * (SIZE // 16 + 1))[:SIZE]
SHA256 = hashlib.sha256(WHOLE).hexdigest()
QUICK = ("--base", "0.01", "--jitter", "full")


@pytest.fixture
def server():
    with FaultServer() as server:
        yield server


@pytest.fixture
def get(capfdbinary):
    """Run the command in this process; exit status, standard output and the lines of standard
    error.
    """

    def run(*arguments):
        try:
            status = main(["get", *map(str, arguments)])
        except SystemExit as left:
            status = left.code
        out, err = capfdbinary.readouterr()
        return status, out, err.decode().splitlines()

    return run


@pytest.fixture
def file(tmp_path):
    return tmp_path / "big.bin"


def field(request, name):
    return {key.lower(): value for key, value in request.headers}.get(name)


def left_of(file):
    return sorted(path.name for path in file.parent.iterdir())


def test_the_body_goes_to_standard_output(get, server):
    server.script("/thing", "200;body=5")
    status, out, err = get(f"{server.url}/thing")
    assert (status, out) == (0, b"01234")
    assert len(err) == 1
    assert err[0].startswith("200: 5 B in ")


def test_each_attempt_has_a_line(get, server):
    server.script("/thing", 503, "429;retry-after=0", "reset", "200;body=5")
    status, out, err = get(f"{server.url}/thing", *QUICK)
    assert (status, out) == (0, b"01234")
    assert [line.partition(", again in ")[0] for line in err[:3]] == [
        "attempt 1: 503",
        "attempt 2: 429",
        "attempt 3: ReadError",
    ]
    assert err[3].endswith(", 4 attempts")


def test_a_file_has_its_name_when_it_is_complete(get, server, file):
    server.script("/big", f"200;body={SIZE}")
    status, out, err = get(f"{server.url}/big", "-o", file, "--sha256", SHA256.upper())
    assert (status, out) == (0, b"")
    assert file.read_bytes() == WHOLE
    assert left_of(file) == ["big.bin"]
    assert err[-1].startswith(f"200: {file}, 200 kB in ")
    assert err[-1].endswith(", SHA-256 as expected")


def test_a_download_that_breaks_is_resumed(get, server, file):
    server.script("/big", f"cut:70000;body={SIZE};etag=v1", f"200;body={SIZE};etag=v1")
    status, _, err = get(f"{server.url}/big", "-o", file, *QUICK)
    assert (status, file.read_bytes() == WHOLE) == (0, True)
    assert err[0].startswith("broke off, RemoteProtocolError, again in ")
    assert err[1] == "resumed at 70 kB of 200 kB"
    assert err[2].endswith(", 2 attempts, resumed 1 ×")
    assert [field(request, "range") for request in server.requests()] == [None, "bytes=70000-"]


def test_another_run_goes_on_where_the_last_one_ended(get, server, file):
    server.script("/big", f"cut:70000;body={SIZE};etag=v1", f"200;body={SIZE};etag=v1")
    status, _, err = get(f"{server.url}/big", "-o", file, "--max-attempts", 1)
    assert status == 18
    assert err[-1] == f"70 kB are in {file}.part; the same command goes on from there"
    assert left_of(file) == ["big.bin.part", "big.bin.part.json"]
    status, _, err = get(f"{server.url}/big", "-o", file, "--sha256", SHA256)
    assert (status, file.read_bytes() == WHOLE) == (0, True)
    assert err[0] == f"going on at 70 kB with {file}.part"
    asked = server.requests()[1]
    assert (field(asked, "range"), field(asked, "if-range")) == ("bytes=70000-", '"v1"')
    assert left_of(file) == ["big.bin"]


def test_a_file_that_has_changed_meanwhile_is_fetched_anew(get, server, file):
    server.script("/big", f"cut:70000;body={SIZE};etag=v1", f"200;body={SIZE - 1};etag=v2")
    assert get(f"{server.url}/big", "-o", file, "--max-attempts", 1)[0] == 18
    assert get(f"{server.url}/big", "-o", file)[0] == 0
    assert file.read_bytes() == WHOLE[:-1]
    assert left_of(file) == ["big.bin"]


def test_a_part_that_was_complete_already_gets_its_name(get, server, file):
    """Killed between the last octet and the renaming: 416 with the length that is there."""
    begun(file, f"{server.url}/big", WHOLE, complete=None)
    server.script("/big", f"200;body={SIZE};etag=v1")
    assert get(f"{server.url}/big", "-o", file, "--sha256", SHA256)[0] == 0
    assert file.read_bytes() == WHOLE
    assert [field(request, "range") for request in server.requests()] == [f"bytes={SIZE}-"]


@pytest.mark.parametrize(
    "notes",
    [
        "",
        "[]",
        "{}",
        '{"url": 1, "validator": 2, "complete": 3}',
        json.dumps(
            {
                "url": hashlib.sha256(b"http://other.test/").hexdigest(),
                "validator": '"v1"',
                "complete": SIZE,
            }
        ),
    ],
)
def test_a_part_of_something_else_is_not_gone_on_with(get, server, file, notes):
    file.with_name("big.bin.part").write_bytes(b"x" * 100)
    file.with_name("big.bin.part.json").write_text(notes)
    server.script("/big", f"200;body={SIZE};etag=v1")
    assert get(f"{server.url}/big", "-o", file)[0] == 0
    assert file.read_bytes() == WHOLE
    assert field(server.requests()[0], "range") is None


@pytest.mark.parametrize("octets", [b"", b"x" * (SIZE + 1)], ids=["nothing", "too much"])
def test_a_part_of_a_wrong_size_is_not_gone_on_with(get, server, file, octets):
    begun(file, f"{server.url}/big", octets, complete=SIZE)
    server.script("/big", f"200;body={SIZE};etag=v1")
    assert get(f"{server.url}/big", "-o", file)[0] == 0
    assert file.read_bytes() == WHOLE


def test_an_answer_that_is_another_part_is_asked_for_anew(get, server, file):
    """206 of octets that were not asked for: nothing of it is kept."""
    begun(file, f"{server.url}/big", WHOLE[:100], complete=SIZE)
    lie = "206;body=50;header=content-range:bytes%2090-139/200000;header=etag:%22v1%22"
    server.script("/big", lie, f"200;body={SIZE};etag=v1")
    assert get(f"{server.url}/big", "-o", file)[0] == 0
    assert file.read_bytes() == WHOLE
    assert [field(request, "range") for request in server.requests()] == ["bytes=100-", None]


def test_a_wrong_digest_leaves_nothing(get, server, file):
    server.script("/big", f"200;body={SIZE};etag=v1")
    status, _, err = get(f"{server.url}/big", "-o", file, "--sha256", "0" * 64)
    assert status == 65
    assert SHA256 in err[-1]
    assert left_of(file) == []
    status, out, err = get(f"{server.url}/big", "--sha256", "0" * 64)
    assert (status, out == WHOLE) == (65, True)  # it was on its way already
    assert get(f"{server.url}/big", "--sha256", SHA256)[0] == 0


def test_what_cannot_be_gone_on_with_is_not_kept(get, server, file):
    server.script("/big", f"cut:70000;body={SIZE}")
    status, _, err = get(f"{server.url}/big", "-o", file, "--max-attempts", 1)
    assert status == 18
    assert left_of(file) == []
    assert "RemoteProtocolError" in err[-1]


def test_an_error_is_for_eyes_and_not_for_the_file(get, server, file):
    server.script("/thing", "404;body=5")
    file.write_bytes(b"the old one")
    status, out, err = get(f"{server.url}/thing", "-o", file)
    assert (status, out, err) == (22, b"", ["forbear get: 404 Not Found"])
    assert file.read_bytes() == b"the old one"
    assert get(f"{server.url}/thing")[:2] == (22, b"01234")


def test_giving_up_says_why(get, server):
    server.script("/thing", 503)
    status, _, err = get(f"{server.url}/thing", "--max-attempts", 2, *QUICK)
    assert status == 22
    assert err[-2:] == [
        "attempt 2: 503, not again: attempts-exhausted",
        "forbear get: 503 Service Unavailable",
    ]


def test_a_post_without_a_key_is_sent_once(get, server, tmp_path):
    order = tmp_path / "order.json"
    order.write_bytes(b'{"item": 7}')
    server.script("/orders", "close")
    status, _, err = get(
        f"{server.url}/orders", "-d", f"@{order}", "-H", "Content-Type: application/json"
    )
    assert status == 52
    assert "method-not-replayable" in err[0]
    (request,) = server.requests()
    assert (request.method, request.sha256) == (
        "POST",
        hashlib.sha256(order.read_bytes()).hexdigest(),
    )
    assert field(request, "content-type") == "application/json"


def test_with_a_key_it_is_sent_again(get, server):
    server.script("/orders", "close", 200)
    assert get(f"{server.url}/orders", "-d", "a=1", "-H", "Idempotency-Key: k-1", *QUICK)[0] == 0
    assert [field(request, "idempotency-key") for request in server.requests()] == ["k-1", "k-1"]
    assert field(server.requests()[0], "content-type") == "application/x-www-form-urlencoded"


def test_another_method(get, server):
    server.script("/thing", 200)
    assert get(f"{server.url}/thing", "-X", "delete")[0] == 0
    assert server.requests()[0].method == "DELETE"


def test_a_part_of_the_callers_own_is_fetched_as_it_is(get, server, file):
    server.script("/big", f"200;body={SIZE};etag=v1")
    assert get(f"{server.url}/big", "-o", file, "-H", "Range: bytes=0-9")[0] == 0
    assert file.read_bytes() == WHOLE[:10]


def test_it_is_over_in_time(get, server):
    server.script("/thing", "hang")
    status, _, err = get(f"{server.url}/thing", "--total-timeout", "0.2")
    assert status == 28
    assert "DeadlineExceeded" in err[-1]


def test_time_ends_a_body_too(get, server, file):
    server.script("/big", f"200;body={SIZE};etag=v1;drip=100")
    assert get(f"{server.url}/big", "-o", file, "--total-timeout", "0.3")[0] == 28


def test_no_connection(get):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        status, _, err = get(
            f"http://127.0.0.1:{taken.getsockname()[1]}/", "--max-attempts", 2, *QUICK
        )
    assert status == 7
    assert err[0].startswith("attempt 1: ConnectError, again in ")


def test_no_such_host(get):
    assert get("http://nowhere.invalid/", "--max-attempts", 1)[0] == 6


def test_nowhere_to_write(get, server, tmp_path):
    """Said before anything is asked for."""
    server.script("/thing", 200)
    status, _, err = get(f"{server.url}/thing", "-o", tmp_path / "missing" / "file")
    assert status == 23
    assert "there is no directory" in err[-1]
    assert server.requests("/thing") == []
    status, _, err = get(f"{server.url}/thing", "-o", tmp_path)
    assert status == 23
    assert "is a directory" in err[-1]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with a name")
def test_what_is_no_file_is_written_and_not_replaced(get, server, tmp_path):
    """A device, most of all: /dev/null has to stay one."""
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    server.script("/thing", "200;body=5")
    status, out, _ = get(f"{server.url}/thing", "-o", pipe)
    reader.join(5)
    assert (status, out, got) == (0, b"", [b"01234"])
    assert pipe.is_fifo()
    assert left_of(pipe) == ["pipe"]


def test_a_link_stays_one(get, server, file):
    link = file.with_name("link")
    try:
        link.symlink_to(file.name)
    except OSError:
        pytest.skip("links cannot be made here")
    server.script("/thing", "200;body=5")
    assert get(f"{server.url}/thing", "-o", link)[0] == 0
    assert link.is_symlink()
    assert file.read_bytes() == b"01234"
    assert left_of(file) == ["big.bin", "link"]


def test_silence(get, server):
    server.script("/thing", 503, 200)
    assert get(f"{server.url}/thing", "-s", *QUICK)[2] == []


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["example.com"], 3, "must begin with http:// or https://, got 'example.com'"),
        (["http://"], 3, "must name a host"),
        (["http://a:b/"], 3, "a port up to 65535"),
        (["http://a:99999/"], 3, "a port up to 65535"),
        (["http://[::1/"], 3, "must name a host"),
        (["ftp://me:secret@a/?key=secret"], 3, "https://, got 'ftp'"),
        (["me:secret@a/?key=secret"], 3, "https://, got 'a'"),
        (["http://a/\udcff"], 3, "write %FF for the byte 0xFF"),
        (["http://a..b/"], 3, "must name a host"),
        (["http://a/", "-X", "GÉT"], 2, "-X takes a method such as PUT, got 'GÉT'"),
        (["http://a/", "-H", "Xü: 1"], 2, "-H takes 'Name: value', got 'Xü: 1'"),
        (["http://a/", "-H", "no colon"], 2, "-H takes 'Name: value', got 'no colon'"),
        (["http://a/", "--sha256", "abc"], 2, "64 hexadecimal digits, got 'abc'"),
        (["http://a/", "-d", "@/no/such/file"], 26, "cannot read /no/such/file"),
        (["http://a/", "--max-attempts", "0"], 2, "max_attempts must be at least 1"),
        (["http://a/", "--policy", "nonsense"], 2, "there is no preset 'nonsense'"),
        ([], 2, "required: URL"),
    ],
)
def test_a_mistake_is_one_line(get, arguments, status, told):
    found, out, err = get(*arguments)
    assert (found, out) == (status, b"")
    assert told in err[-1]
    assert len(err) == 1 or err[0].startswith("usage: ")
    assert "secret" not in "".join(err)


def test_a_header_goes_out_byte_by_byte(get, server):
    server.script("/thing", "200;body=5")
    status, _, _ = get(
        f"{server.url}/thing".replace("http", "HTTP", 1), "-H", "X-Name: Zoë", "-H", "X-Raw: \udcff"
    )
    assert status == 0
    (request,) = server.requests()
    assert field(request, "x-name").encode("latin-1") == os.fsencode("Zoë")
    assert field(request, "x-raw").encode("latin-1") == b"\xff"


@pytest.mark.skipif(os.name != "posix", reason="there is no such limit")
def test_a_full_disk_is_said_in_a_line(server, file):
    """Also where what was buffered is what cannot be written."""
    server.script("/thing", "200;body=50")
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (30, 30));" + (
        "from forbear.tools.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    # -B: the limit holds for compiled modules too, and half of one is one that cannot be loaded.
    command = [sys.executable, "-B", "-c", limited, "get", f"{server.url}/thing", "-o", str(file)]
    environment = {"PYTHONPATH": str(Path(forbear.__file__).parent.parent), "PATH": ""}
    ended = subprocess.run(
        command, stderr=subprocess.PIPE, env=environment, timeout=30, check=False
    )
    assert ended.returncode == 23
    assert b"forbear get: cannot write the body: File too large" in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_without_httpx_it_says_what_to_install(get, monkeypatch):
    for name in ("httpx", "httpx2"):
        monkeypatch.setitem(sys.modules, name, None)
    status, _, err = get("http://127.0.0.1/")
    assert (status, err) == (
        2,
        ["forbear get: httpx is not installed: pip install 'forbear[httpx]'"],
    )


def test_redirects_are_followed(get, server):
    server.script("/old", "302;header=location:/new")
    server.script("/new", "200;body=3")
    server.script("/round", "302;header=location:/round")
    server.script("/nowhere", "302;header=location:http://a..b/")
    assert get(f"{server.url}/old")[:2] == (0, b"012")
    assert get(f"{server.url}/round")[0] == 47
    status, _, err = get(f"{server.url}/nowhere")
    assert status == 3
    assert err[-1].endswith("its host has no valid name")


def test_an_interrupted_download_can_be_gone_on_with(server, file):
    """Ctrl-C: the part stays, and nobody sees a traceback."""
    server.script("/big", f"200;body={SIZE};etag=v1;drip=20")
    command = [sys.executable, "-m", "forbear", "get", f"{server.url}/big", "-o", str(file)]
    environment = {"PYTHONPATH": str(Path(forbear.__file__).parent.parent), "PATH": ""}
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment) as process:
        place = file.with_name("big.bin.part")
        for _ in range(500):
            if place.exists() and file.with_name("big.bin.part.json").exists():
                break
            try:
                process.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
        process.send_signal(2)
        _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert place.exists()


@pytest.mark.skipif(os.name != "posix", reason="nothing is locked here")
@pytest.mark.parametrize("etag", ["v1", "v2"], ids=["goes on", "begins anew"])
def test_of_two_runs_at_once_the_second_is_refused(get, server, file, etag):
    """Each would append the rest; what one has written stays as it is."""
    url = f"{server.url}/big"
    server.script("/big", f"200;body={SIZE};etag={etag}")
    first = Part(file, url)
    first.open(anew=True, lines=[("etag", '"v1"'), ("content-length", str(SIZE))])
    first.write(WHOLE[:100_000])
    first._file.flush()
    status, _, err = get(url, "-o", file)
    assert status == 23
    assert f"forbear get: cannot write {file}.part: another run is writing it" in err
    first.write(WHOLE[100_000:])
    first.complete()
    assert file.read_bytes() == WHOLE
    assert left_of(file) == ["big.bin"]


@pytest.mark.skipif(os.name != "posix", reason="nothing is locked here")
def test_a_part_that_another_run_has_finished_meanwhile_is_left_alone(file):
    """Between the look at it and the opening: there is nothing any more to append to."""
    begun(file, "http://x/", b"01234", 10)
    late, other = Part(file, "http://x/"), Part(file, "http://x/")
    assert late.pick_up() is not None
    assert other.pick_up() is not None
    other.open(anew=False)
    other.write(b"56789")
    other.close()
    with pytest.raises(OSError, match="another run is writing it"):
        late.open(anew=False)
    late.close()
    assert file.with_name("big.bin.part").read_bytes() == b"0123456789"


def begun(file, url, octets, complete):
    """As if an earlier run had come so far."""
    part = Part(file, url)
    length = [("content-length", str(complete))] if complete is not None else []
    part.open(anew=True, status=200, lines=[("etag", '"v1"'), *length])
    part.write(octets)
    part.close()
