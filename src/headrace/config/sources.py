"""Where the settings of a node come from: files, the environment, flags. What comes later wins.

Nothing is read here: content goes in, and texts by setting name come out, with what is to be told about them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headrace.config.amounts import setting_value
from headrace.config.listeners import parse_listener
from headrace.config.node import ALIASES, broker_settings
from headrace.config.properties import parse_properties
from headrace.config.setting import Effect, Scope, nearest, unknown
from headrace.errors import Error, HeadraceError, Refused

PREFIX: Final = "HEADRACE_"
OTHER_VARIABLES: Final = (
    "HEADRACE_BOOTSTRAP",
    "HEADRACE_COMPAT_BOOTSTRAP",
    "HEADRACE_COMPLETE",
    "HEADRACE_CONFIG",
    "HEADRACE_LOG_FORMAT",
    "HEADRACE_LOG_LEVEL",
    "HEADRACE_PROPERTIES",
    "HEADRACE_TRACEBACK",
)
"""Variables that are no settings of a broker."""

_GONE: Final = {
    "zookeeper.connect": "there is no ZooKeeper: the node keeps its own metadata.",
    "inter.broker.protocol.version": "brokers agree on versions by themselves.",
    "log.message.format.version": "there is one format of messages.",
    "broker.id.generation.enable": "a node has the id that it is given: set node.id.",
}
_TYPO_LIKENESS: Final = 0.9
"""Less than this is a setting of an older Kafka rather than a slip of the pen."""


class Settings:
    """The texts of a node's settings, by name, and where each is from."""

    __slots__ = ("origins", "texts", "told")

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.origins: dict[str, str] = {}
        self.told: list[str] = []
        """Sentences for the operator: what was not taken, or has no effect."""

    def add(self, texts: Mapping[str, str], origin: str) -> None:
        """These win over what was there. Raises HeadraceError, with the origin, for what no node takes. Amounts may
        have units, as in 7d."""
        self._take({name: setting_value(name, text) for name, text in texts.items()}, origin)

    def _take(self, texts: Mapping[str, str], origin: str) -> None:
        known = broker_settings()
        for name, text in texts.items():
            setting = known.get(ALIASES.get(name, name))
            try:
                if setting is None:
                    raise unknown(name, [*known, *ALIASES], Scope.BROKER)
                _require_utf8(name, text)
                if name != "broker.id" or text.strip() != "-1":
                    setting.parse(text)
            except Refused as refused:
                raise HeadraceError(f"{origin}: {refused.text}") from refused
            if name == "log.dir" and "log.dirs" in texts:
                continue
            if name in ALIASES:  # what is said later under one name wins over what was said under the other
                self.texts.pop(ALIASES[name], None)
            for alias, main in ALIASES.items():
                if main == name and alias not in texts:
                    self.texts.pop(alias, None)
            self.texts[name] = text
            self.origins[name] = origin

    def add_properties(self, content: bytes, origin: str) -> None:
        """A file of Kafka's. What is unknown is left out and told; what would break a promise is refused."""
        try:
            given = parse_properties(content)
        except HeadraceError as error:
            raise HeadraceError(f"{origin}: {error}") from error
        known = broker_settings()
        taken: dict[str, str] = {}
        for name, text in given.items():
            if ALIASES.get(name, name) in known:
                taken[name] = text
            else:
                self.told.append(f"{origin}: {name} is left out: {_GONE.get(name) or _not_in_kafka(name)}")
        self._leave_out_controllers(taken, origin)
        self._take(taken, origin)  # without units: what Kafka would refuse in its own file is refused

    def _leave_out_controllers(self, texts: dict[str, str], origin: str) -> None:
        """The listeners of controllers: this node reaches its controller in its own process."""
        controllers = {name.strip() for name in texts.get("controller.listener.names", "").split(",")} - {""}
        for setting in ("listeners", "advertised.listeners"):
            if setting not in texts or not controllers:
                continue
            kept = []
            for listener in filter(None, (word.strip() for word in texts[setting].split(","))):
                if parse_listener(listener, setting).name in controllers:
                    self.told.append(
                        f"{origin}: {setting} {listener} is left out: the controller is in the node's own process."
                    )
                else:
                    kept.append(listener)
            texts[setting] = ",".join(kept)
            if setting == "advertised.listeners" and not kept:
                del texts[setting]

    def add_environment(self, environment: Mapping[str, str]) -> None:
        """HEADRACE_LOG_RETENTION_HOURS is log.retention.hours. A name that is no setting's is told, and left out."""
        known = broker_settings()
        for variable in sorted(environment):
            if not variable.startswith(PREFIX) or variable in OTHER_VARIABLES:
                continue
            name = variable.removeprefix(PREFIX).lower().replace("_", ".")
            if ALIASES.get(name, name) in known:
                self.add({name: environment[variable]}, variable)
            else:
                self.told.append(f"{variable} is left out: {unknown(name, known, Scope.BROKER).text}")

    def tell_stored(self) -> None:
        """Notes the settings that have another value than the default and no effect."""
        known = broker_settings()
        for name, text in self.texts.items():
            setting = known[ALIASES.get(name, name)]
            if setting.effect is not Effect.STORED or setting.parse(text) == setting.default:
                continue
            why = setting.why or setting.kafka
            self.told.append(f"{self.origins[name]}: {name} has no effect: {why[:1].lower()}{why[1:]}")


def _require_utf8(name: str, text: str) -> None:
    """Every setting is told to clients, folders too, and no message can carry other bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused(Error.INVALID_CONFIG, f"{name} is no UTF-8, as every setting must be.") from None


def _not_in_kafka(name: str) -> str:
    near = nearest(name, broker_settings(), _TYPO_LIKENESS)
    return f"Kafka 4 has no such setting{f'; did you mean {near}?' if near else '.'}"


def parse_toml(content: bytes, origin: str) -> dict[str, str]:
    """Settings of a TOML file: names in tables, dotted or quoted. Raises HeadraceError."""
    import tomllib  # only for who has such a file

    try:
        document = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        hint = "; a name that begins like another one stands in quotes" if "overwrite" in str(error) else ""
        raise HeadraceError(f"{origin} is no TOML: {str(error).rstrip('.')}{hint}.") from error
    texts: dict[str, str] = {}
    _flatten(document, "", texts, origin)
    return texts


def _flatten(table: Mapping[str, Any], prefix: str, texts: dict[str, str], origin: str) -> None:
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            _flatten(value, f"{name}.", texts, origin)
        elif name in texts:
            raise HeadraceError(f"{origin}: {name} is set twice.")
        else:
            texts[name] = _text(name, value, origin)


def _text(name: str, value: Any, origin: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(item, str | int) and "," not in str(item) for item in value):
        return ",".join(map(str, value))
    raise HeadraceError(f"{origin}: {name} must be a text, a number, true, false or a list of texts.")
