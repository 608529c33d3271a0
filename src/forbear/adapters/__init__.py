"""Adapters: one port for each library and colour. Floor: acts.

Private attributes of the libraries that forbear reads, all of them. Without one of them the code
falls back to the strict side or says so; tests/adapters/test_private_attributes.py guards each.

    _body_position      requests, prepared request: where a file body began
    _client             SDKs: the httpx client inside theirs
    _connect_failed     httpcore, connection: never opened, so its place in the pool is free
    _connection         httpcore, connection: the one inside; urllib3, response: to give back
    _connections        httpcore, pool
    _container          urllib3, HTTPHeaderDict: the lines by lower-case name
    _content            requests, response: the body that was read
    _fp                 urllib3, response: http.client's response below
    _list               httpx, Headers: the lines; faster than `raw`
    _max_connections    httpcore, pool: the most it opens
    _mounts             httpx, client: its transports by URL pattern
    _optional_thread_lock  httpcore, pool
    _original_response  urllib3, response: http.client's response below
    _pool               httpx, transport: httpcore's pool; urllib3, response: where it came from
    _proxy_requires_url_absolute_form  urllib3, proxy manager
    _requests           httpcore, pool: who waits for a connection
    _retries            httpcore, pool: connect retries of its own
    _sock               http.client, below a response: the socket
    _stream             httpx, body of an iterator: the iterator
    _transport          httpx, client: its main transport
    _uri_reference      httpx, URL: its parts as they are
"""
