"""API tokens and privileges.

Sources: pve-access-control, PVE/AccessControl.pm: verify_token, roles; PVE/RPCEnvironment.pm: check, check_any,
get_effective_permissions, exec_api2_perm_check; pve-http-server, PVE/APIServer/AnyEvent.pm: the Authorization header.
"""

import re
import secrets
import time
import uuid

from endpoints import Permission
from errors import ApiError, permission_error
from inventory import TokenSpec

TOP_PATHS = ("/", "/access", "/access/groups", "/nodes", "/pool", "/sdn", "/storage", "/vms")


class Access:
    def __init__(self, specs: list[TokenSpec]) -> None:
        self.specs = {spec.id: spec for spec in specs}
        self.secrets = {spec.id: str(uuid.uuid4()) for spec in specs}
        # Privileges that a test took away: a privilege, and the path below which it is missing.
        self.denied: list[tuple[str, str]] = []

    def authenticate(self, header: str | None) -> str:
        """Identifier of the token of a request. Every refusal is an ApiError with status 401."""
        if not header:
            raise ApiError("No ticket", 401)
        found = re.fullmatch(r"PVEAPIToken[= ](.+)=([^=]*)", header)
        if not found:
            raise ApiError("no tokenid specified" if header.startswith("PVEAPIToken") else "No ticket", 401)
        token, value = found[1], found[2]
        user, _, name = token.partition("!")
        if not any(known.startswith(f"{user}!") for known in self.specs):
            raise ApiError(f"no such user ('{user}')", 401)
        if token not in self.specs:
            raise ApiError(f"no such token '{name}' for user '{user}'", 401)
        expire = self.specs[token].expire
        if expire and expire < time.time():
            raise ApiError(f"token '{name}' access expired", 401)
        if not secrets.compare_digest(value, self.secrets[token]):
            raise ApiError("invalid token value!", 401)
        return token

    def privileges(self, token: str, path: str) -> set[str]:
        """The entry of the nearest path counts, as for roles of one user in the source."""
        best, found = -1, set()
        for entry in self.specs[token].acl:
            inside = entry.path == "/" or path == entry.path or path.startswith(entry.path + "/")
            if inside and len(entry.path) > best:
                best, found = len(entry.path), set(entry.privileges)
        # A list, because a test may change it meanwhile.
        for privilege, below in list(self.denied):
            if below == "/" or path == below or path.startswith(below + "/"):
                found.discard(privilege)
        return found

    def has(self, token: str, path: str, *privileges: str) -> bool:
        return set(privileges) <= self.privileges(token, path)

    def has_any(self, token: str, path: str, *privileges: str) -> bool:
        return bool(set(privileges) & self.privileges(token, path))

    def check(self, token: str, path: str, *privileges: str) -> None:
        """The message names the first privilege that is missing."""
        held = self.privileges(token, path)
        for privilege in privileges:
            if privilege not in held:
                raise permission_error(f"{path}, {privilege}")

    def check_any(self, token: str, path: str, *privileges: str) -> None:
        if not self.has_any(token, path, *privileges):
            raise permission_error(f"{path}, {'|'.join(privileges)}")

    def check_endpoint(self, permission: Permission, token: str, parameters: dict[str, str]) -> None:
        if not permission.path:
            return
        path = re.sub(r"\{(\w+)\}", lambda m: str(parameters[m[1]]), permission.path)
        (self.check_any if permission.any else self.check)(token, path, *permission.privileges)

    def effective(self, token: str, paths: set[str]) -> dict[str, dict[str, int]]:
        """Privileges by path; paths without any are left out."""
        every = set(TOP_PATHS) | {entry.path for entry in self.specs[token].acl} | paths
        held = {path: sorted(self.privileges(token, path)) for path in sorted(every)}
        return {path: {privilege: 1 for privilege in privileges} for path, privileges in held.items() if privileges}
