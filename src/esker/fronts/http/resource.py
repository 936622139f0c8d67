"""A path with its methods: finds the route of a request, and whether the one who asks may have it.

The order of the checks: the key (401), the method (405), the scope (403), then the names in the path (400, 403), which
each endpoint reads for itself.
"""

from __future__ import annotations

from typing import NoReturn

from esker.fronts.access import Scope
from esker.fronts.http.calls import Call
from esker.fronts.http.errors import HttpError
from esker.fronts.http.logins import authenticate
from esker.fronts.http.routes import Route


class Resource:
    __slots__ = ("path", "routes")

    def __init__(self, path: str) -> None:
        self.path = path
        self.routes: dict[str, Route] = {}

    def add(self, route: Route) -> None:
        assert route.method not in self.routes, f"{route.method} {route.path} is in the table twice"
        self.routes[route.method] = route

    def find(self, call: Call) -> Route:
        """The route of this request, which its key may use. Raises 401, 403 and 405."""
        method = "WEBSOCKET" if call.scope["type"] == "websocket" else call.method
        route = self.routes.get(method)
        if method == "HEAD" and (whole := self.routes.get("GET")) is not None and whole.stream is None:
            route = whole  # its answer is sent without the body
        if route is None:
            authenticate(call)
            if method == "GET" and "WEBSOCKET" in self.routes:
                raise HttpError(400, "invalid_request", f"{self.path} is a WebSocket; ask for it with an upgrade")
            allowed = ", ".join(sorted("GET" if name == "WEBSOCKET" else name for name in self.routes))
            raise HttpError(
                405,
                "method_not_allowed",
                f"{self.path} takes {allowed}, not {method}",
                headers=[(b"allow", allowed.encode())],
            )
        if not (route.public or (route.probe and not call.front.options.probe_auth)):
            authenticate(call, route.token_in_query)
            call.need(route.needs)
        return route


def unknown_path(call: Call) -> NoReturn:
    """Nothing is there. Whoever may not write is not even told so below a topic, in case there will be something."""
    authenticate(call)
    if call.path.startswith("/v0/topics/"):
        call.need(Scope.WRITE)
    raise HttpError(404, "not_found", f"there is nothing at {call.path[:200]!r}; /docs lists what there is")
