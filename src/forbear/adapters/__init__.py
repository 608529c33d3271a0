"""Adapters: one port for each library and flavour.

Private attributes of the libraries that forbear reads, all of them. Without one of them the code
falls back to the strict side or says so; tests/adapters/test_private_attributes.py guards each.

    _HTTPConnection__response  http.client, connection: the response that is read from it
    _available_connections  aiohttp, connector: how many more may be opened
    _body               aiohttp, request: its payload; response: its bytes, once read
    _body_position      requests, prepared request: where a file body began
    _cache              aiohttp, response: properties that were read
    _client             SDKs: the httpx client inside theirs
    _closed             httpcore, body: its closing has begun
    _connect_failed     httpcore, connection: never opened, so its slot in the pool is free
    _connection         httpcore, connection: the one inside; urllib3, aiohttp, response: its own
    _connections        httpcore, pool
    _conns              aiohttp, connector: what is idle, and since when
    _container          urllib3, HTTPHeaderDict: the lines by lower-case name
    _content            requests, response: the body that was read
    _data               h11, what was received: the bytes; its length alone is read
    _events             httpcore, connection of HTTP/2: the streams in flight
    _fp                 urllib3, response: http.client's response below
    _h11_state          httpcore, connection of HTTP/1.1: h11's part of it, and what arrived unread
    _h2_state           httpcore, connection of HTTP/2: h2's part of it
    _headers            aiohttp, response: of one without a connection
    _httpcore_stream    httpx, body of a response: httpcore's below
    _iter               aiohttp, payload: None once it was used up
    _list               httpx, Headers: the lines; faster than `raw`
    _loop               aiohttp, response: of one without a connection
    _max_connections    httpcore, pool: the most it opens
    _middlewares        aiohttp, session
    _mounts             httpx, client: its transports by URL pattern
    _optional_thread_lock  httpcore, pool
    _original_response  urllib3, response: http.client's response below
    _pool               httpx, transport, and httpcore, body: the pool; urllib3, response: the same
    _pool_request       httpcore, body: what its pool knows as in flight
    _protocol           aiohttp, response: of the connection that it came on
    _proxy_requires_url_absolute_form  urllib3, proxy manager
    _raw_headers        aiohttp, response: of one without a connection
    _read_lock          httpcore, connection of HTTP/2: held while one receives for all streams
    _real_url           aiohttp, response: of one without a connection
    _receive_buffer     h11, connection: what was received and is not read; its public view copies
    _receive_events     httpcore, connection of HTTP/2: called to receive once
    _request            httpcore, body over HTTP/2: whose timeouts a receive has
    _request_count      httpcore, connection: requests that were sent over it
    _request_info       aiohttp, response: of one without a connection
    _requests           httpcore, pool: what waits for a connection
    _retries            httpcore, pool: connect retries of its own
    _sock               http.client, below a response: the socket
    _stream             httpx, body of an iterator: the iterator; httpcore, body: the one inside
    _stream_id          httpcore, body over HTTP/2: which of the streams
    _timer              aiohttp, request: the same one for all hops of a call
    _traces             aiohttp, response: of one without a connection
    _transport          httpx, client: its main transport
    _uri_reference      httpx, URL: its parts as they are
    _url                aiohttp, response: of one without a connection
    _value              aiohttp, payload: the object that it was made of
    _writer             aiohttp, response: the task that writes the request's body
"""
