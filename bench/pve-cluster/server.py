"""The HTTPS server: requests, their checks, faults, answers.

The order of checks is that of the source: token, method, parameters twice, privileges, the node, parameters by the schema,
the handler, the answer by the schema.

Sources: pve-http-server, PVE/APIServer/AnyEvent.pm: extract_params, handle_api2_request, proxy_request, and
PVE/APIServer/Formatter/Standard.pm; pve-manager, PVE/HTTPServer.pm: rest_handler; pve-common, PVE/RESTHandler.pm: handle.
"""

import gzip
import json
import re
import ssl
import time
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import api
import api_cluster
import api_storage
from api import Call
from cluster_state import Cluster
from endpoints import ENDPOINTS, Endpoint, find
from errors import ApiError, param_error
from faults import Rule
from schema import record, validate

BASE = "/api2/json"
# Limit of a request's body. Source: AnyEvent.pm: $limit_max_post.
BODY_BYTES = 64 << 10
NO_ANSWER_S = 600
# An idle connection ends after five seconds, a busy one after a hundred requests. Source: AnyEvent.pm: timeout, keep_alive.
IDLE_S = 5
REQUESTS = 100
# Shorter answers are not compressed. Source: AnyEvent.pm: response.
PLAIN_BYTES = 1024


def handlers() -> dict[str, Callable[[Call], Any]]:
    modules = (api, api_storage, api_cluster)
    found = {name: value for module in modules for name, value in vars(module).items() if callable(value)}
    return {endpoint.handler: found[endpoint.handler] for endpoint in ENDPOINTS}


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, cluster: Cluster, port: int, context: ssl.SSLContext, unauthorized_s: float) -> None:
        self.cluster, self.context, self.unauthorized_s = cluster, context, unauthorized_s
        self.handlers = handlers()
        super().__init__(("127.0.0.1", port), Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Lost and refused connections are ordinary; clients report them."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server
    timeout = IDLE_S
    disable_nagle_algorithm = True
    server_version, sys_version = "pve-api-daemon/3.0", ""
    requests = 0

    def setup(self) -> None:
        self.request = self.server.context.wrap_socket(self.request, server_side=True)
        super().setup()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.serve()

    do_POST = do_PUT = do_DELETE = do_GET

    def serve(self) -> None:
        url = urlsplit(self.path)
        path = unquote(url.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(min(length, BODY_BYTES))
        rule = self.server.cluster.faults.take(f"{self.command} {path.removeprefix(BASE)}")
        names = self.server.cluster.inventory.nodes
        if names[0].name in self.server.cluster.faults.down or (rule and rule.kind == "no-answer"):
            # The node whose address this is does not answer.
            if rule and rule.kind == "no-answer":
                self.wait_for_close()
            self.close_connection = True
            return
        try:
            if length > BODY_BYTES:
                raise ApiError("for data too large", 413)
            data, total = self.run(path, url.query, body, rule)
            answer: dict[str, Any] = {"data": data} | ({"total": total} if total is not None else {})
            status, reason = 200, "OK"
        except ApiError as error:
            status, reason = error.status, error.message
            answer = {"data": None, "message": error.message + "\n"} | (
                {"errors": error.errors} if error.errors else {}
            )
            if status == 401:
                # Source: AnyEvent.pm: refused tokens wait three seconds.
                time.sleep(self.server.unauthorized_s)
        except Exception as error:
            # A fault of this program, never of a real cluster.
            traceback.print_exc()
            status, reason, answer = 500, f"fake cluster: {type(error).__name__}: {error}", {"data": None}
        if rule and rule.kind == "lost-answer":
            self.close_connection = True
            return
        self.answer(status, reason, b"" if status == 595 else json.dumps(answer).encode(), rule)

    def wait_for_close(self) -> None:
        self.connection.settimeout(NO_ANSWER_S)
        try:
            self.rfile.read(1)
        except OSError:
            pass

    def answer(self, status: int, reason: str, content: bytes, rule: Rule | None) -> None:
        self.send_response(status, re.sub(r"[^\x20-\x7e]+", " ", reason.split("\n")[0]))
        self.send_header("Cache-Control", "max-age=0")
        self.send_header("Pragma", "no-cache")
        self.send_header("Content-Type", "application/json;charset=UTF-8")
        if len(content) > PLAIN_BYTES and "gzip" in self.headers.get("Accept-Encoding", ""):
            content = gzip.compress(content, 1)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(content)))
        self.requests += 1
        if status >= 400 or self.requests >= REQUESTS:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if rule and rule.kind == "cut":
            content = content[: rule.bytes]
            self.close_connection = True
        self.wfile.write(content)

    def run(self, path: str, query: str, body: bytes, rule: Rule | None) -> tuple[Any, int | None]:
        cluster, method = self.server.cluster, self.command
        if not path.startswith(BASE + "/"):
            raise ApiError("no such uri", 501)
        relative = path.removeprefix(BASE).rstrip("/")
        token = cluster.access.authenticate(self.headers.get("Authorization"))
        if rule and rule.kind == "expired-token":
            raise ApiError(f"token '{token.partition('!')[2]}' access expired", 401)
        if rule and rule.kind == "status":
            raise ApiError(rule.text, rule.status)
        found = find(method, relative)
        if found is None:
            raise ApiError(f"Method '{method} {relative}' not implemented", 501)
        endpoint, parameters = found
        for key, value in self.parameters(query, body).items():
            if key in parameters:
                raise param_error({key: "duplicate parameter (already defined in URI)"})
            parameters[key] = value
        cluster.access.check_endpoint(endpoint.permission, token, parameters)
        if endpoint.proxied:
            self.check_node(parameters["node"])
        closed = record(dict(endpoint.parameters), closed=True)
        validate(closed, parameters, "Parameter verification failed.", 400)
        if rule and rule.kind == "changed-digest":
            self.change_digest(parameters)
        call = Call(cluster, token, parameters, hold=rule.at if rule and rule.kind == "hang-task" else "")
        data = self.server.handlers[endpoint.handler](call)
        self.check_answer(endpoint, data)
        return data, call.total

    def parameters(self, query: str, body: bytes) -> dict[str, Any]:
        """A body counts for POST and PUT only; repeated keys are joined by NUL, as in the source."""
        found: dict[str, Any] = {}
        if self.command in ("POST", "PUT"):
            if (self.headers.get("Content-Type") or "").split(";")[0].strip() == "application/json":
                found = _json_parameters(body)
            else:
                found = _urlencoded(body.decode(errors="replace"))
        found |= _urlencoded(query)
        found.pop("_dc", None)
        return found

    def check_node(self, node: str) -> None:
        """Source: AnyEvent.pm: proxy_request: a node that cannot be reached is status 595 without a body."""
        if node not in [known.name for known in self.server.cluster.inventory.nodes]:
            raise ApiError(
                f"hostname lookup '{node}' failed - failed to get address info for: {node}: Name or service not known"
            )
        if node in self.server.cluster.faults.down:
            raise ApiError("No route to host", 595)

    def change_digest(self, parameters: dict[str, Any]) -> None:
        conf = self.server.cluster.config(int(parameters["vmid"]), parameters["node"])
        conf.values["description"] = f"changed at {time.time_ns()}"
        conf.write()

    def check_answer(self, endpoint: Endpoint, data: Any) -> None:
        """Source: RESTHandler.pm: handle, with verification of results."""
        if data is None and (endpoint.returns.optional or endpoint.returns.type == "null"):
            return
        validate(endpoint.returns, data, "Result verification failed", 500)


def _urlencoded(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in parse_qsl(text, keep_blank_values=True):
        found[key] = f"{found[key]}\0{value}" if key in found else value
    return found


def _json_parameters(body: bytes) -> dict[str, Any]:
    try:
        raw = json.loads(body or b"{}")
    except ValueError as error:
        raise ApiError(str(error), 501) from error
    if not isinstance(raw, dict):
        raise ApiError("Not a HASH reference", 501)
    return {
        key: str(int(value)) if isinstance(value, bool) else str(value) if isinstance(value, (int, float)) else value
        for key, value in raw.items()
    }
