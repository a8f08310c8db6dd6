"""Who may do what, and how much: access control entries, SCRAM users, quotas. To look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from headrace.client.admin.calls import Calls, check
from headrace.client.arguments import flag, mapping, text, texts
from headrace.errors import Error
from headrace.protocol.messages import (
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

__all__ = ["Acl", "ClientQuota", "ScramCredential", "SecurityCalls"]

_ANY: Final = 1
_EXACT: Final = 0


class Acl(NamedTuple):
    """An access control entry; numbers are those of Kafka's protocol."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class ScramCredential(NamedTuple):
    mechanism: int
    """1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""
    iterations: int


class ClientQuota(NamedTuple):
    entity: dict[str, str | None]
    """Name by type (user, client-id, ip); None is the default of its type."""
    values: dict[str, float]


class SecurityCalls(Calls):
    __slots__ = ()

    async def describe_acls(self) -> list[Acl]:
        """All access control entries. Refused, SECURITY_DISABLED, by a cluster that has no authorizer."""
        request = DescribeAclsRequest(
            resource_type_filter=_ANY,
            resource_name_filter=None,
            pattern_type_filter=_ANY,
            principal_filter=None,
            host_filter=None,
            operation=_ANY,
            permission_type=_ANY,
        )
        response: DescribeAclsResponse = await self._cluster.call(request)
        check(response.error_code, response.error_message, "Access control entries can't be described")
        return [
            Acl(
                found.resource_type,
                found.resource_name,
                found.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for found in response.resources
            for acl in found.acls
        ]

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, list[ScramCredential]]:
        """The SCRAM mechanisms of users, or of all that have one; a user without any is left out."""
        user = DescribeUserScramCredentialsRequest.UserName
        request = DescribeUserScramCredentialsRequest(
            users=None if users is None else [user(name=name) for name in texts("users", users)]
        )
        response: DescribeUserScramCredentialsResponse = await self._cluster.call(request)
        check(response.error_code, response.error_message, "SCRAM credentials can't be described")
        found: dict[str, list[ScramCredential]] = {}
        for result in response.results:
            if result.error_code == Error.RESOURCE_NOT_FOUND:
                continue
            check(result.error_code, result.error_message, f"The credentials of {result.user} can't be described")
            found[result.user] = [ScramCredential(one.mechanism, one.iterations) for one in result.credential_infos]
        return found

    async def describe_client_quotas(
        self, entity: Mapping[str, str] | None = None, *, strict: bool = False
    ) -> list[ClientQuota]:
        """The quotas of clients, all or those of an entity, such as {"user": "ann"}."""
        flag("strict", strict)
        wanted = {} if entity is None else mapping("entity", entity, "names by their types, such as {'user': 'alice'}")
        for kind, name in wanted.items():
            text("each type of entity", kind)
            text("each name of entity", name, empty=True)
        component = DescribeClientQuotasRequest.ComponentData
        request = DescribeClientQuotasRequest(
            components=[component(entity_type=kind, match_type=_EXACT, match=name) for kind, name in wanted.items()],
            strict=strict,
        )
        response: DescribeClientQuotasResponse = await self._cluster.call(request)
        check(response.error_code, response.error_message, "Quotas can't be described")
        return [
            ClientQuota(
                {part.entity_type: part.entity_name for part in entry.entity},
                {value.key: value.value for value in entry.values},
            )
            for entry in response.entries or []
        ]
