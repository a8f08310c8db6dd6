"""What tools ask about security: there is none here, and each API says so in the way of a Kafka without any."""

from __future__ import annotations

from collections import Counter
from typing import Final

from headrace.errors import Error, Refused
from headrace.metadata.image import QuotaEntity
from headrace.metadata.loader import Loader
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.frame import Request

_NO_AUTHORIZER: Final = "No authorizer is configured on this broker."
_EXACT: Final = 0
_DEFAULT: Final = 1
_SPECIFIED: Final = 2
_ENTITY_TYPES: Final = ("user", "client-id", "ip")


class Security:
    __slots__ = ("_loader",)

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    # --- access control entries ---------------------------------------------------------------------------------------

    def describe_acls(self, connection: Connection, request: Request) -> m.DescribeAclsResponse:
        return m.DescribeAclsResponse(error_code=Error.SECURITY_DISABLED, error_message=_NO_AUTHORIZER)

    def create_acls(self, connection: Connection, request: Request) -> m.CreateAclsResponse:
        body: m.CreateAclsRequest = request.body
        result = m.CreateAclsResponse.AclCreationResult
        return m.CreateAclsResponse(
            results=[result(error_code=Error.SECURITY_DISABLED, error_message=_NO_AUTHORIZER) for _ in body.creations]
        )

    def delete_acls(self, connection: Connection, request: Request) -> m.DeleteAclsResponse:
        body: m.DeleteAclsRequest = request.body
        result = m.DeleteAclsResponse.DeleteAclsFilterResult
        return m.DeleteAclsResponse(
            filter_results=[
                result(error_code=Error.SECURITY_DISABLED, error_message=_NO_AUTHORIZER) for _ in body.filters
            ]
        )

    # --- SCRAM --------------------------------------------------------------------------------------------------------

    def describe_scram(self, connection: Connection, request: Request) -> m.DescribeUserScramCredentialsResponse:
        body: m.DescribeUserScramCredentialsRequest = request.body
        kind = m.DescribeUserScramCredentialsResponse
        known: dict[str, list[m.DescribeUserScramCredentialsResponse.CredentialInfo]] = {}
        for (name, mechanism), credential in self._loader.image.credentials.items():
            info = kind.CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
            known.setdefault(name, []).append(info)
        asked = Counter(user.name for user in body.users or ()) or Counter(known)  # none, as null, stands for all
        response = kind(error_message=None)
        for name, count in asked.items():
            result = kind.DescribeUserScramCredentialsResult(user=name, error_message=None)
            if count > 1:
                result.error_code = Error.DUPLICATE_RESOURCE
                result.error_message = f"User {name} is in the request more than once."
            elif name not in known:
                result.error_code = Error.RESOURCE_NOT_FOUND
                result.error_message = f"User {name} has no SCRAM credentials."
            else:
                result.credential_infos = known[name]
            response.results.append(result)
        return response

    # --- quotas -------------------------------------------------------------------------------------------------------

    def describe_quotas(self, connection: Connection, request: Request) -> m.DescribeClientQuotasResponse:
        body: m.DescribeClientQuotasRequest = request.body
        kind = m.DescribeClientQuotasResponse
        try:
            _check_filter(body.components)
        except Refused as refused:
            return kind(error_code=refused.error, error_message=refused.text, entries=None)
        return kind(
            error_message=None,
            entries=[
                kind.EntryData(
                    entity=[kind.EntityData(entity_type=part, entity_name=name) for part, name in entity],
                    values=[kind.ValueData(key=key, value=value) for key, value in values.items()],
                )
                for entity, values in self._loader.image.quotas.items()
                if _matches(entity, body)
            ],
        )


def _check_filter(components: list[m.DescribeClientQuotasRequest.ComponentData]) -> None:
    seen: dict[str, None] = {}
    for component in components:
        kind, match_type = component.entity_type, component.match_type
        if not kind:
            raise _invalid("A filter has an entity type that is empty.")
        if kind in seen:
            raise _invalid(f"The entity type {kind} is in the filter more than once.")
        seen[kind] = None
        if kind not in _ENTITY_TYPES:
            raise Refused(Error.UNSUPPORTED_VERSION, f"There is no entity type {kind}.")
        if match_type not in (_EXACT, _DEFAULT, _SPECIFIED):
            raise _invalid(f"There is no match type {match_type}.")
        if match_type == _EXACT and component.match is None:
            raise _invalid("An exact match needs a name.")
        if match_type != _EXACT and component.match is not None:
            raise _invalid("A match of the default, or of any name, has no name.")
    if "ip" in seen and len(seen) > 1:
        raise _invalid("The entity type ip can't be with others in a filter.")


def _matches(entity: QuotaEntity, body: m.DescribeClientQuotasRequest) -> bool:
    parts = dict(entity)
    if body.strict and len(parts) != len(body.components):
        return False
    for component in body.components:
        if component.entity_type not in parts:
            return False
        name = parts[component.entity_type]
        if component.match_type == _EXACT and name != component.match:
            return False
        if component.match_type == _DEFAULT and name is not None:
            return False
    return True


def _invalid(text: str) -> Refused:
    return Refused(Error.INVALID_REQUEST, text)
