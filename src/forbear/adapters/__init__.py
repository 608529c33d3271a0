"""Adapters: one port for each library and colour. Floor: acts.

Private attributes of the libraries that forbear reads, all of them. Without one of them the code
falls back to the strict side or says so; tests/adapters/test_private_attributes.py guards each.

    _available_connections  aiohttp, connector: how many more may be opened
    _body               aiohttp, request: its payload; response: its octets, once read
    _body_position      requests, prepared request: where a file body began
    _cache              aiohttp, response: properties that were asked for
    _client             SDKs: the httpx client inside theirs
    _connect_failed     httpcore, connection: never opened, so its place in the pool is free
    _connection         httpcore, connection: the one inside; urllib3, aiohttp, response: its own
    _connections        httpcore, pool
    _container          urllib3, HTTPHeaderDict: the lines by lower-case name
    _content            requests, response: the body that was read
    _events             httpcore, connection of HTTP/2: the streams under way
    _fp                 urllib3, response: http.client's response below
    _h2_state           httpcore, connection of HTTP/2: h2's part of it
    _headers            aiohttp, response: of one without a connection
    _iter               aiohttp, payload: None once it was used up
    _list               httpx, Headers: the lines; faster than `raw`
    _loop               aiohttp, response: of one without a connection
    _max_connections    httpcore, pool: the most it opens
    _middlewares        aiohttp, session
    _mounts             httpx, client: its transports by URL pattern
    _optional_thread_lock  httpcore, pool
    _original_response  urllib3, response: http.client's response below
    _pool               httpx, transport: httpcore's pool; urllib3, response: where it came from
    _proxy_requires_url_absolute_form  urllib3, proxy manager
    _raw_headers        aiohttp, response: of one without a connection
    _real_url           aiohttp, response: of one without a connection
    _request_info       aiohttp, response: of one without a connection
    _requests           httpcore, pool: who waits for a connection
    _retries            httpcore, pool: connect retries of its own
    _sock               http.client, below a response: the socket
    _stream             httpx, body of an iterator: the iterator
    _timer              aiohttp, request: the same one for all hops of a call
    _traces             aiohttp, response: of one without a connection
    _transport          httpx, client: its main transport
    _uri_reference      httpx, URL: its parts as they are
    _url                aiohttp, response: of one without a connection
    _value              aiohttp, payload: the object that it was made of
    _writer             aiohttp, response: the task that writes the request's body
"""
