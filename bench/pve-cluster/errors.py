"""Errors of the API: status, message and errors by parameter.

Sources: pve-common, PVE/Exception.pm: raise_param_exc, raise_perm_exc; pve-manager, PVE/HTTPServer.pm: rest_handler.
"""


class ApiError(Exception):
    """Refusal of a request. Without a status it is what Perl's die gives: 500."""

    def __init__(self, message: str, status: int = 500, errors: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.errors = errors or {}


class Interrupted(Exception):
    """SIGTERM to a worker, raised where Perl's handler would raise it."""


class NotModelled(ApiError):
    """Request that a real cluster accepts and this one does not simulate."""

    def __init__(self, what: str) -> None:
        super().__init__(f"fake cluster: {what} is not modelled", 501)


def param_error(errors: dict[str, str]) -> ApiError:
    return ApiError("Parameter verification failed.", 400, errors)


def permission_error(what: str) -> ApiError:
    return ApiError(f"Permission check failed ({what})", 403)
