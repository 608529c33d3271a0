"""Options of a pool manager: forbear's and urllib3's own; loaded with the first that is given."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import TYPE_CHECKING

import urllib3
from urllib3.poolmanager import PoolKey
from urllib3.response import BaseHTTPResponse

from ...addons.options import Options
from ...engine.settings import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from ssl import SSLContext

    from .pool import Retries


class ManagerOptions(Options[Callable[[BaseHTTPResponse], bool | None]], total=False):
    """Options of a pool manager: forbear's, and urllib3's own, which are left to urllib3."""

    timeout: urllib3.Timeout | float | None
    maxsize: int
    block: bool
    retries: Retries
    source_address: tuple[str, int] | None
    socket_options: Sequence[tuple[int, int, int | bytes]] | None
    key_file: str | None
    key_password: str | None
    cert_file: str | None
    cert_reqs: int | str | None
    ca_certs: str | None
    ca_cert_data: str | bytes | None
    ssl_version: int | str | None
    ssl_context: SSLContext | None
    assert_hostname: str | bool | None
    assert_fingerprint: str | None
    server_hostname: str | None
    proxy_url: str
    proxy_headers: Mapping[str, str] | None
    proxy_ssl_context: SSLContext | None


def is_urllib3s(name: str, base: type[urllib3.PoolManager]) -> bool:
    """Is this an option of urllib3's own manager? A version may have more than are listed here."""
    if name in DEFAULTS:
        return False
    return (
        name in ManagerOptions.__annotations__
        or f"key_{name}" in PoolKey._fields
        or name in signature(base).parameters
    )
