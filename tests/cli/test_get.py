"""``forbear get``: what it writes, what it says, its exit status, against a faulting server."""

import hashlib
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import forbear
from forbear.core.headers.ranges import Download
from forbear.testing import FaultServer
from forbear.tools.cli import main
from forbear.tools.cli.part import Part

pytestmark = pytest.mark.skipif(os.name != "posix", reason="locks, pipes and limits of Unix")
SIZE = 200_000
WHOLE = (b"0123456789abcdef" * (SIZE // 16 + 1))[:SIZE]
SHA256 = hashlib.sha256(WHOLE).hexdigest()
QUICK = ("--base", "0.01", "--jitter", "full")
ENVIRONMENT = {"PYTHONPATH": str(Path(forbear.__file__).parent.parent), "PATH": ""}


@pytest.fixture
def server():
    with FaultServer() as server:
        yield server


@pytest.fixture
def get(capfdbinary):
    """Run the command in this process; status, standard output, lines of standard error."""

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


def begun(file, url, octets):
    """As if an earlier run had come so far."""
    part = Part(file, url)
    part.begin(Download(0, SIZE - 1, SIZE, '"v1"', ""))
    part.write(octets)
    assert part.leave()


def test_each_attempt_has_a_line_and_the_body_goes_to_standard_output(get, server):
    server.script("/thing", 503, "429;retry-after=0", "reset", "200;body=5")
    status, out, err = get(f"{server.url}/thing", *QUICK)
    assert (status, out) == (0, b"01234")
    assert [line.partition(", again in ")[0] for line in err[:3]] == [
        "attempt 1: 503",
        "attempt 2: 429",
        "attempt 3: ReadError",
    ]
    assert err[3].startswith("200: 5 B in ")
    assert err[3].endswith(", 4 attempts")


def test_giving_up_says_why(get, server):
    server.script("/thing", 503)
    status, _, err = get(f"{server.url}/thing", "--max-attempts", 2, *QUICK)
    assert status == 22
    assert err[-2:] == [
        "attempt 2: 503, not again: attempts-exhausted",
        "forbear get: 503 Service Unavailable",
    ]


def test_a_download_that_breaks_is_resumed(get, server, file):
    server.script("/big", f"cut:70000;body={SIZE};etag=v1", f"200;body={SIZE};etag=v1")
    status, _, err = get(f"{server.url}/big", "-o", file, *QUICK)
    assert (status, file.read_bytes() == WHOLE) == (0, True)
    assert err[0].startswith("broke off, RemoteProtocolError, again in ")
    assert err[1] == "resumed at 70 kB"
    assert err[2].endswith(", 2 attempts")
    assert [field(request, "range") for request in server.requests()] == [None, "bytes=70000-"]


def test_another_run_goes_on_where_the_last_one_ended(get, server, file):
    server.script("/big", f"cut:70000;body={SIZE};etag=v1", f"200;body={SIZE};etag=v1")
    status, _, err = get(f"{server.url}/big", "-o", file, "--max-attempts", 1)
    assert status == 18
    assert f"70 kB are in {file}.part; the same command goes on from there" in err
    assert left_of(file) == ["big.bin.part", "big.bin.part.of"]
    status, _, err = get(f"{server.url}/big", "-o", file, "--sha256", SHA256)
    assert (status, file.read_bytes() == WHOLE) == (0, True)
    assert err[0] == f"going on at 70 kB with {file}.part"
    asked = server.requests()[1]
    assert (field(asked, "range"), field(asked, "if-range")) == ("bytes=70000-", '"v1"')
    assert left_of(file) == ["big.bin"]
    assert err[1].startswith(f"206: {file}, 130 kB in ")
    assert err[1].endswith(", SHA-256 as expected")


def test_an_error_in_between_does_not_lose_what_is_there(get, server, file):
    begun(file, f"{server.url}/big", WHOLE[:100])
    server.script("/big", 503, f"200;body={SIZE};etag=v1")
    assert get(f"{server.url}/big", "-o", file, "--max-attempts", 1)[0] == 22
    assert get(f"{server.url}/big", "-o", file)[0] == 0
    assert [field(request, "range") for request in server.requests()] == ["bytes=100-"] * 2


def test_a_part_that_was_complete_already_gets_its_name(get, server, file):
    """Killed between the last octet and the renaming: 416 with the length that is there."""
    begun(file, f"{server.url}/big", WHOLE)
    server.script("/big", f"200;body={SIZE};etag=v1")
    assert get(f"{server.url}/big", "-o", file, "--sha256", SHA256)[0] == 0
    assert file.read_bytes() == WHOLE
    assert [field(request, "range") for request in server.requests()] == [f"bytes={SIZE}-"]


def test_a_part_of_another_url_is_not_gone_on_with(get, server, file):
    begun(file, f"{server.url}/other", b"x" * 100)
    server.script("/big", f"200;body={SIZE};etag=v1")
    assert get(f"{server.url}/big", "-o", file)[0] == 0
    assert file.read_bytes() == WHOLE
    assert field(server.requests()[0], "range") is None


@pytest.mark.parametrize("notes", [None, "", "\xff", '0123\n"v1"\n'])
def test_a_part_that_is_no_earlier_runs_stays_as_it_is(get, server, file, notes):
    """Another program's, or another user's: nothing is asked for, and nothing of it is lost."""
    part = file.with_name("big.bin.part")
    part.write_bytes(b"x" * 100)
    if notes is not None:
        file.with_name("big.bin.part.of").write_text(notes)
    status, _, err = get(f"{server.url}/big", "-o", file)
    assert (status, part.read_bytes()) == (23, b"x" * 100)
    assert err == [f"forbear get: cannot write {part}: not from an earlier run; remove it"]
    assert server.requests() == []


@pytest.mark.parametrize("name", ["big.bin.part", "big.bin.part.of"])
def test_links_are_not_followed_and_pipes_hang_nobody(get, server, file, tmp_path, name):
    """Whoever can write into the directory could have any file of ours cut to nothing."""
    other = tmp_path / "other"
    other.write_bytes(b"precious")
    server.script("/big", f"200;body={SIZE};etag=v1")
    place, status = file.with_name(name), 23 if name.endswith("part") else 0
    place.symlink_to(other)
    assert get(f"{server.url}/big", "-o", file)[0] == status
    assert other.read_bytes() == b"precious"
    assert not other.is_symlink()
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    assert get(f"{server.url}/big", "-o", file)[0] == status


def test_a_part_of_a_killed_run_without_a_validator_is_begun_anew(get, server, file):
    """It has notes too: that it is forbear's own, and that nothing can be asked for."""
    killed = Part(file, f"{server.url}/big")
    killed.begin(None)
    killed.write(b"x" * 100_000)
    killed._file.close()
    server.script("/big", f"200;body={SIZE}")
    assert get(f"{server.url}/big", "-o", file)[0] == 0
    assert file.read_bytes() == WHOLE
    assert left_of(file) == ["big.bin"]


@pytest.mark.parametrize(
    ("steps", "ranges"),
    [
        # No validator: nothing to ask for the rest with.
        ([f"cut:70000;body={SIZE}", f"200;body={SIZE}"], [None, None]),
        # A validator, but the rest is answered with the whole.
        (
            [f"cut:70000;body={SIZE};etag=v1"] + [f"200;body={SIZE};header=etag:%22v1%22"] * 2,
            [None, "bytes=70000-", None],
        ),
    ],
)
def test_a_download_that_cannot_be_resumed_is_begun_anew(get, server, file, steps, ranges):
    """As curl --retry and wget do; each beginning counts as an attempt."""
    server.script("/big", *steps)
    status, _, err = get(f"{server.url}/big", "-o", file, "--sha256", SHA256, *QUICK)
    assert (status, file.read_bytes() == WHOLE) == (0, True)
    assert any(line.startswith("RemoteProtocolError: from the beginning in ") for line in err)
    assert f"200: {file}, 200 kB in" in err[-1]
    assert f", {len(ranges)} attempts, SHA-256 as expected" in err[-1]
    assert [field(request, "range") for request in server.requests()] == ranges
    assert left_of(file) == ["big.bin"]


@pytest.mark.parametrize(
    ("arguments", "step", "sent"),
    [
        (["--max-attempts", 3], f"cut:70000;body={SIZE}", 3),
        # The whole, the refused rest, the whole: and no promise after the rest was refused.
        (["--max-attempts", 3], f"cut:70000;body={SIZE};header=etag:%22v1%22", 3),
        (["--total-timeout", 5, "--base", 9, "--jitter", "none"], f"cut:70000;body={SIZE}", 1),
        (["-d", "a=1"], f"cut:70000;body={SIZE}", 1),  # a POST is not sent again
    ],
)
def test_what_cannot_be_begun_anew_any_more_is_not_promised(
    get, server, file, arguments, step, sent
):
    server.script("/big", step)
    status, _, err = get(f"{server.url}/big", "-o", file, *QUICK, *arguments)
    assert status == 18
    assert not any("the same command" in line for line in err)
    assert len(server.requests()) == sent
    assert left_of(file) == []


def test_a_part_that_nobody_asked_for_is_not_the_whole(get, server, file):
    lie = "206;body=100;header=content-range:bytes%200-99/500000"
    server.script("/big", lie)
    file.write_bytes(b"the old one")
    status, _, err = get(f"{server.url}/big", "-o", file)
    assert (status, err) == (18, ["forbear get: 206 Partial Content"])
    assert file.read_bytes() == b"the old one"
    assert left_of(file) == ["big.bin"]
    assert get(f"{server.url}/big")[0] == 18
    wanted = get(f"{server.url}/big", "-o", file, "-H", "Range: bytes=0-99")
    assert (wanted[0], len(file.read_bytes())) == (0, 100)


@pytest.mark.parametrize(
    ("there", "lie"),
    [
        (100, "206;body=50;header=content-range:bytes%20100-149/150;header=etag:%22v2%22"),
        (100, "206;body=50;header=content-range:bytes%2090-139/200000;header=etag:%22v1%22"),
        (SIZE + 1, f"200;body={SIZE};etag=v1"),  # 416: there is more than the whole
    ],
)
def test_an_answer_that_is_not_the_rest_is_asked_for_anew(get, server, file, there, lie):
    begun(file, f"{server.url}/big", b"x" * there)
    server.script("/big", lie, f"200;body={SIZE};etag=v1")
    assert get(f"{server.url}/big", "-o", file)[0] == 0
    assert file.read_bytes() == WHOLE
    asked = [field(request, "range") for request in server.requests()]
    assert asked == [f"bytes={there}-", None]


def test_a_wrong_digest_leaves_nothing(get, server, file):
    server.script("/big", f"200;body={SIZE};etag=v1")
    status, _, err = get(f"{server.url}/big", "-o", file, "--sha256", "0" * 64)
    assert status == 65
    assert SHA256 in err[-1]
    assert left_of(file) == []
    assert get(f"{server.url}/big", "--sha256", "0" * 64)[0] == 65
    assert get(f"{server.url}/big", "--sha256", SHA256)[:2] == (0, WHOLE)


def test_an_error_is_for_eyes_and_not_for_the_file(get, server, file):
    server.script("/thing", "404;body=5")
    file.write_bytes(b"the old one")
    status, out, err = get(f"{server.url}/thing", "-o", file)
    assert (status, out, err) == (22, b"", ["forbear get: 404 Not Found"])
    assert file.read_bytes() == b"the old one"
    assert get(f"{server.url}/thing")[:2] == (22, b"01234")


def test_a_post_without_a_key_is_sent_once_and_with_one_again(get, server, tmp_path):
    order = tmp_path / "order.json"
    order.write_bytes(b'{"item": 7}')
    server.script("/orders", "close", 200)
    status, _, err = get(f"{server.url}/orders", "-d", f"@{order}", "-H", "Content-Type: a/b")
    assert status == 56
    assert "method-not-replayable" in err[0]
    (request,) = server.requests()
    assert (request.method, field(request, "content-type")) == ("POST", "a/b")
    assert request.sha256 == hashlib.sha256(order.read_bytes()).hexdigest()
    server.script("/more", "close", 200)
    assert get(f"{server.url}/more", "-d", "a=1", "-H", "Idempotency-Key: k-1", *QUICK)[0] == 0
    keys = [field(request, "idempotency-key") for request in server.requests("/more")]
    assert keys == ["k-1", "k-1"]
    default = "application/x-www-form-urlencoded"
    assert field(server.requests("/more")[0], "content-type") == default


def test_a_method_and_headers_go_out_as_they_were_given(get, server):
    server.script("/thing", 200)
    assert get(f"{server.url}/thing", "-X", "delete", "-H", "X-Raw: \udcff")[0] == 0
    (request,) = server.requests()
    assert request.method == "DELETE"
    assert field(request, "x-raw").encode("latin-1") == b"\xff"


@pytest.mark.parametrize("step", ["hang", f"200;body={SIZE};drip=100"])
def test_it_is_over_in_time(get, server, file, step):
    server.script("/thing", step)
    assert get(f"{server.url}/thing", "-o", file, "--total-timeout", "0.3")[0] == 28


def test_no_connection(get):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        status, _, err = get(url, "--max-attempts", 2, *QUICK)
    assert status == 7
    assert err[0].startswith("attempt 1: ConnectError, again in ")
    assert get("http://nowhere.invalid/", "--max-attempts", 1)[0] == 6


def test_redirects_are_followed(get, server):
    server.script("/old", "302;header=location:/new")
    server.script("/new", "200;body=3")
    server.script("/round", "302;header=location:/round")
    server.script("/nowhere", "302;header=location:http://a..b/")
    assert get(f"{server.url}/old")[:2] == (0, b"012")
    assert get(f"{server.url}/round")[0] == 47
    assert get(f"{server.url}/nowhere")[0] == 3


def test_nowhere_to_write(get, server, tmp_path):
    """Said before anything is asked for."""
    server.script("/thing", 200)
    for place in (tmp_path / "missing" / "file", tmp_path):
        status, _, err = get(f"{server.url}/thing", "-o", place)
        assert status == 23
        assert err[-1].startswith(f"forbear get: cannot write {place}")
    assert server.requests("/thing") == []


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


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["example.com"], 3, "missing an 'http://' or 'https://' protocol"),
        (["ftp://me:secret@a/?key=secret"], 3, "unsupported protocol 'ftp://'"),
        (["http://a/", "-X", "GÉT"], 2, "method"),
        (["http://a/", "-H", "Authorization secret"], 2, "a header must be 'Name: value'"),
        (["http://a/", "-H", "Authorization: a\rsecret"], 2, "a header must be 'Name: value'"),
        (["http://a/", "-H", "Authorization: a\nsecret: x"], 2, "a header must be"),
        (["http://a/", "-H", "sec(ret: value"], 2, "a header must be 'Name: value'"),
        (["http://a/", "--sha256", "abc"], 2, "64 hexadecimal digits, got 'abc'"),
        (["http://a/", "-d", "@/no/such/file"], 2, "cannot read /no/such/file"),
        (["http://a/", "--max-attempts", "0"], 2, "max_attempts must be at least 1"),
    ],
)
def test_a_mistake_is_told_without_secrets(get, arguments, status, told):
    found, out, err = get(*arguments)
    assert (found, out) == (status, b"")
    assert told in err[-1]
    assert "secret" not in "".join(err)


HOSTILE = "\x1b[2Jgone\x08\x9b\u202e".encode()
ANSWERS = [
    b"HTTP/1.1 404 " + HOSTILE + b"\r\nContent-Length: 0\r\n\r\n",  # a reason phrase
    b"HTTP/1.1 302 Found\r\nLocation: http://" + HOSTILE + b"/\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + HOSTILE + b": 1\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: " + HOSTILE + b"\r\n\r\n",
    HOSTILE + b"\r\n\r\n",
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_no_text_of_a_server_reaches_a_terminal_that_it_would_obey(get, answer):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def work():
            connection = listener.accept()[0]
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

        thread = threading.Thread(target=work)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        status, out, err = get(url, "--max-attempts", 1)
        thread.join()
    assert status
    assert out == b""
    assert err
    assert all(line.isprintable() for line in err)


def test_without_httpx_it_says_what_to_install(get, monkeypatch):
    for name in ("httpx", "httpx2"):
        monkeypatch.setitem(sys.modules, name, None)
    told = "forbear get: httpx is not installed: pip install 'forbear[httpx]', or"
    told += " pip install '.[httpx]' in a checkout"
    assert get("http://127.0.0.1/") == (2, b"", [told])


def test_a_full_disk_is_said_in_a_line(server, file):
    server.script("/thing", "200;body=50")
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (30, 30));"
        "from forbear.tools.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    # -B: the limit holds for compiled modules too, and half of one cannot be loaded.
    command = [sys.executable, "-B", "-c", code, "get", f"{server.url}/thing", "-o", str(file)]
    done = subprocess.run(command, capture_output=True, env=ENVIRONMENT, timeout=30, check=False)
    assert done.returncode == 23
    assert b"forbear get: cannot write the body: File too large" in done.stderr
    assert b"Traceback" not in done.stderr


def test_an_interrupted_download_can_be_gone_on_with(server, file):
    """Ctrl-C: the part stays, and nobody sees a traceback."""
    server.script("/big", f"200;body={SIZE};etag=v1;drip=100")
    command = [sys.executable, "-m", "forbear", "get", f"{server.url}/big", "-o", str(file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
        origin = file.with_name("big.bin.part.of")
        while not origin.exists() and process.poll() is None:
            pass
        threading.Event().wait(0.2)
        process.send_signal(2)
        _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert b"the same command goes on from there" in err


def test_of_two_runs_at_once_the_second_is_refused(get, server, file):
    """Each would append the rest; what one has written stays as it is."""
    url = f"{server.url}/big"
    first = Part(file, url)
    first.begin(None)
    first.write(WHOLE)
    status, _, err = get(url, "-o", file)
    assert status == 23
    assert f"forbear get: cannot write {file}.part: another run is writing it" in err
    assert server.requests() == []
    first.complete()
    assert file.read_bytes() == WHOLE
    assert left_of(file) == ["big.bin"]


def test_a_part_that_another_run_has_finished_meanwhile_is_left_alone(file, monkeypatch):
    """Between its opening and its locking: there is nothing any more to append to."""
    import fcntl

    begun(file, "http://x/", b"01234")
    lock = fcntl.flock

    def late(*arguments):
        file.with_name("big.bin.part").replace(file)
        lock(*arguments)

    monkeypatch.setattr("fcntl.flock", late)
    with pytest.raises(OSError, match="another run is writing it"):
        Part(file, "http://x/")
    assert file.read_bytes() == b"01234"
