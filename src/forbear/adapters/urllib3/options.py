"""Options of a pool manager: forbear's and urllib3's own, for type checkers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import urllib3
from urllib3.response import BaseHTTPResponse

from ...addons.options import Options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from ssl import SSLContext, TLSVersion
    from typing import Literal

    from .pool import Retries


class ManagerOptions(Options[Callable[[BaseHTTPResponse], bool | None]], total=False):
    """Options of a pool manager: forbear's, and urllib3's own, which are left to urllib3."""

    timeout: urllib3.Timeout | float | None
    maxsize: int
    block: bool
    blocksize: int
    retries: Retries
    source_address: tuple[str, int] | None
    socket_options: Sequence[tuple[int, int, int | bytes]] | None
    key_file: str | None
    key_password: str | None
    cert_file: str | None
    cert_reqs: int | str | None
    ca_certs: str | None
    ca_cert_dir: str | None
    ca_cert_data: str | bytes | None
    ssl_version: int | str | None
    ssl_minimum_version: TLSVersion | int | None
    ssl_maximum_version: TLSVersion | int | None
    ssl_context: SSLContext | None
    assert_hostname: str | Literal[False] | None
    assert_fingerprint: str | None
    server_hostname: str | None
    proxy_url: str
    proxy_headers: Mapping[str, str] | None
    proxy_ssl_context: SSLContext | None
    proxy_assert_hostname: str | Literal[False] | None
    proxy_assert_fingerprint: str | None
    use_forwarding_for_https: bool
