"""One request to an application, as a server makes it."""

from wsgiref.util import setup_testing_defaults

URL = "http://backend.example/"
PLAIN = [("Content-Type", "text/plain")]
RETRY = {"retry-attempt": "2"}


def marks_of(lines):
    return [value for name, value in lines if name.lower() == "x-should-retry"]


async def ask_asgi(app, headers=(), *, kind="http"):
    """Return the messages that the application sent."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    lines = [(name.encode(), value.encode()) for name, value in dict(headers).items()]
    await app({"type": kind, "method": "GET", "path": "/", "headers": lines}, receive, send)
    return sent


def answering(work, status=200, lines=(), kind="http"):
    """An application that does some work and answers."""

    async def app(scope, receive, send):
        await work()
        headers = [(name.encode(), value.encode()) for name, value in lines]
        await send({"type": f"{kind}.response.start", "status": status, "headers": headers})
        await send({"type": f"{kind}.response.body", "body": b"ok"})

    return app


def environ_of(headers=(), **more):
    named = {f"HTTP_{name.upper().replace('-', '_')}": text for name, text in dict(headers).items()}
    environ = {"QUERY_STRING": "", **named}
    setup_testing_defaults(environ)
    return {**environ, **more}


def ask_wsgi(app, headers=(), **environ):
    """Return the line of status, values of x-should-retry and the body."""
    started = []

    def start_response(line, lines, exc_info=None):
        started.append((line, marks_of(lines)))

    body = app(environ_of(headers, **environ), start_response)
    content = b"".join(body)
    if hasattr(body, "close"):
        body.close()
    ((line, marks),) = started
    return line, marks, content
