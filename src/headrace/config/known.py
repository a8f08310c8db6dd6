"""Kafka's settings of a broker that no part of a node reads: all the others that Kafka 4.2 has.

None is ignored in silence. Those that can have no effect here are checked, stored and described; the reason stands over
them. Those that would promise something that is not there are described with their default, and any other value is
refused with the reason. When a part of the node comes that takes a setting, its group declares it, and it goes here.

A line has the name, the type, the default (nothing: unset), the update mode (r: at a restart; c: while brokers run, on
all or on one; b: on one), bounds where there are any, and what it does.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from headrace.config.known_security import SECURITY, TIMES
from headrace.config.setting import Change, Kind, Setting
from headrace.named_tuple import NamedTuple


class Section(NamedTuple):
    title: str
    why: str
    refuses: bool
    rows: str


THREADS: Final = Section(
    "Threads and queues",
    "A node is one process with one event loop; what blocks has threads of its own, as many as it needs.",
    False,
    """\
background.threads | int | 10 | c | 1.. | The threads for work in the background.
num.io.threads | int | 8 | c | 1.. | The threads that serve requests.
num.network.threads | int | 3 | c | 1.. | The threads that read requests and write replies.
queued.max.requests | int | 500 | r | 1.. | The most requests that wait for a thread.
delete.records.purgatory.purge.interval.requests | int | 1 | r | | How often waiting DeleteRecords are looked through.
fetch.purgatory.purge.interval.requests | int | 1000 | r | | How often waiting fetches are looked through.
producer.purgatory.purge.interval.requests | int | 1000 | r | | How often waiting produces are looked through.
share.fetch.purgatory.purge.interval.requests | int | 1000 | r | | How often waiting share fetches are looked through.
group.coordinator.background.threads | int | 2 | r | 1.. | The threads of the group coordinator for slow work.
group.coordinator.cached.buffer.max.bytes | int | 1048588 | c | 524288.. | The memory that a coordinator keeps.
""",
)
SYSTEM: Final = Section(
    "Sockets",
    "The sockets have the system's own buffers, which grow as they need, and a backlog of 1024.",
    False,
    """\
socket.listen.backlog.size | int | 50 | r | 1.. | How many connections may wait to be accepted.
socket.receive.buffer.bytes | int | 102400 | r | -1.. | The receive buffer of a connection; -1 is the system's.
socket.send.buffer.bytes | int | 102400 | r | -1.. | The send buffer of a connection; -1 is the system's.
""",
)
ONE_NODE: Final = Section(
    "Between nodes",
    "A cluster has one node: it does not replicate, and talks to nobody but clients.",
    False,
    """\
alter.log.dirs.replication.quota.window.num | int | 11 | r | 1.. | The samples behind the quota of moves.
alter.log.dirs.replication.quota.window.size.seconds | int | 1 | r | 1.. | How long each of them is.
auto.leader.rebalance.enable | boolean | true | r | | Whether leadership goes back to preferred replicas by itself.
controller.listener.names | list | CONTROLLER | r | | The listeners that controllers use among themselves.
controller.quorum.append.linger.ms | int | 25 | r | 0.. | How long the leader of the quorum waits for more to write.
controller.quorum.auto.join.enable | boolean | false | r | | Whether a new controller joins the quorum by itself.
controller.quorum.bootstrap.servers | list | | r | | Where a new node finds the quorum.
controller.quorum.fetch.max.bytes | int | 1048576 | r | 1.. | The most bytes in a reply to a voter's fetch.
controller.quorum.fetch.snapshot.max.bytes | int | 1048576 | r | 1.. | The most bytes of a snapshot in one reply.
controller.quorum.voters | list | | r | | The nodes that vote, as id@host:port; it must be this one, if any.
controller.socket.timeout.ms | int | 30000 | r | | How long a broker waits for the controller.
follower.replication.throttled.rate | long | 9223372036854775807 | c | 0.. | The most that throttled replicas fetch.
initial.broker.registration.timeout.ms | int | 60000 | r | | How long a broker tries to register before it gives up.
leader.imbalance.check.interval.seconds | long | 300 | r | 1.. | How often the balance of leaders is looked at.
leader.replication.throttled.rate | long | 9223372036854775807 | c | 0.. | The most that throttled replicas get.
log.dir.failure.timeout.ms | long | 30000 | r | 1.. | How long a broker tries to tell of a failed folder.
num.replica.alter.log.dirs.threads | int | | r | | The threads that move replicas between folders.
num.replica.fetchers | int | 1 | c | 1.. | The fetchers for each broker that is replicated from.
replica.fetch.backoff.ms | int | 1000 | r | 0.. | How long a fetcher waits after an error.
replica.fetch.max.bytes | int | 1048576 | r | 0.. | The bytes that a follower asks of a partition.
replica.fetch.min.bytes | int | 1 | r | | The least bytes that a follower's fetch waits for.
replica.fetch.response.max.bytes | int | 10485760 | r | 0.. | The bytes that a follower asks for in one fetch.
replica.fetch.wait.max.ms | int | 500 | r | | How long a follower's fetch waits.
replica.lag.time.max.ms | long | 30000 | r | | How long a follower may lag before it is out of sync.
replica.socket.receive.buffer.bytes | int | 65536 | r | | The receive buffer of a follower's connection.
replica.socket.timeout.ms | int | 30000 | r | | How long a follower waits for a reply.
replication.quota.window.num | int | 11 | r | 1.. | The samples behind the quotas of replication.
replication.quota.window.size.seconds | int | 1 | r | 1.. | How long each of them is.
request.timeout.ms | int | 30000 | r | | How long a broker waits for another's reply.
socket.connection.setup.timeout.max.ms | long | 30000 | r | | The longest that a broker waits for a connection.
socket.connection.setup.timeout.ms | long | 10000 | r | | How long it waits at first.
""",
)
METADATA: Final = Section(
    "The metadata log",
    "The metadata log is kept by its snapshots, and its segments follow them.",
    False,
    """\
metadata.log.segment.bytes | int | 1073741824 | r | 8388608.. | The largest segment of the metadata log.
metadata.log.segment.ms | long | 604800000 | r | | The oldest segment that is still written to.
metadata.max.idle.interval.ms | int | 500 | r | 0.. | How often an idle controller writes a record that says nothing.
""",
)
MEASURES: Final = Section(
    "Quotas and metrics of Kafka's own",
    "There are no quotas yet, and metrics are counted since the start, for a scraper to take the rates of.",
    False,
    """\
controller.quota.window.num | int | 11 | r | 1.. | The samples behind the quota of changes to topics.
controller.quota.window.size.seconds | int | 1 | r | 1.. | How long each of them is.
kafka.metrics.polling.interval.secs | int | 10 | r | 1.. | How often Kafka's reporters look.
metrics.num.samples | int | 2 | r | 1.. | The samples behind Kafka's rates.
metrics.recording.level | string | INFO | r | | How much Kafka measures.
metrics.sample.window.ms | long | 30000 | r | 1.. | How long a sample of Kafka's rates is.
quota.window.num | int | 11 | r | 1.. | The samples behind the quotas of clients.
quota.window.size.seconds | int | 1 | r | 1.. | How long each of them is.
""",
)
PLUGINS: Final = Section(
    "Classes of Java",
    "it names a class of Java, and none can be loaded here.",
    True,
    """\
alter.config.policy.class.name | class | | r | | A class that has a say in changes of settings.
client.quota.callback.class | class | | r | | A class that decides on quotas.
config.providers | list | | c | | Classes that fetch values from elsewhere; use environment variables.
create.topic.policy.class.name | class | | r | | A class that has a say in new topics.
kafka.metrics.reporters | list | | r | | Classes that Kafka's metrics go to.
metric.reporters | list | org.apache.kafka.common.metrics.JmxReporter | c | | Classes that metrics go to.
replica.selector.class | string | | r | | A class that says which replica a consumer reads from.
""",
)
ROLES: Final = Section(
    "Roles",
    "a node is a broker and a controller.",
    True,
    """\
process.roles | list | broker,controller | r | | What this node is: broker, controller, or both.
""",
)
SHUTDOWN: Final = Section(
    "How a node stops",
    "a node always hands over what it has before it stops.",
    True,
    """\
controlled.shutdown.enable | boolean | true | r | | Whether a broker hands its partitions over before it stops.
""",
)
NEW_CONNECTIONS: Final = Section(
    "New connections",
    "there is no limit of how many connections come in a second; max.connections limits how many there are.",
    True,
    """\
max.connection.creation.rate | int | 2147483647 | c | 0.. | The most new connections a second.
""",
)
TIERED: Final = Section(
    "Tiered storage",
    "there is no tiered storage yet.",
    True,
    """\
follower.fetch.last.tiered.offset.enable | boolean | false | c | | Whether an empty follower skips what is tiered.
remote.fetch.max.wait.ms | int | 500 | c | 1.. | How long a fetch waits for the object store.
remote.list.offsets.request.timeout.ms | long | 30000 | c | 1.. | How long ListOffsets waits for the object store.
remote.log.index.file.cache.total.size.bytes | long | 1073741824 | c | 1.. | The disk for indexes of remote segments.
remote.log.manager.copier.thread.pool.size | int | 10 | c | -1.. | The threads that copy segments.
remote.log.manager.copy.max.bytes.per.second | long | 9223372036854775807 | c | 1.. | The most copied a second.
remote.log.manager.copy.quota.window.num | int | 11 | r | 1.. | The samples behind that.
remote.log.manager.copy.quota.window.size.seconds | int | 1 | r | 1.. | How long each of them is.
remote.log.manager.expiration.thread.pool.size | int | 10 | c | -1.. | The threads that delete remote segments.
remote.log.manager.fetch.max.bytes.per.second | long | 9223372036854775807 | c | 1.. | The most fetched a second.
remote.log.manager.fetch.quota.window.num | int | 11 | r | 1.. | The samples behind that.
remote.log.manager.fetch.quota.window.size.seconds | int | 1 | r | 1.. | How long each of them is.
remote.log.manager.follower.thread.pool.size | int | 2 | c | -1.. | The threads of followers.
remote.log.manager.task.interval.ms | long | 30000 | r | 1.. | How often there is something to copy or delete.
remote.log.manager.thread.pool.size | int | 2 | r | 1.. | The threads for all of it.
remote.log.metadata.custom.metadata.max.bytes | int | 128 | r | 0.. | The most that a storage may note about a segment.
remote.log.metadata.manager.class.name | string | \
org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager | r | | The class that \
notes what is remote.
remote.log.metadata.manager.class.path | string | | r | | Where that class is.
remote.log.metadata.manager.impl.prefix | string | rlmm.config. | r | | How its settings begin.
remote.log.metadata.manager.listener.name | string | | r | | The listener that it uses.
remote.log.reader.max.pending.tasks | int | 100 | r | 1.. | The most remote reads that wait.
remote.log.reader.threads | int | 10 | c | 1.. | The threads that read remote segments.
remote.log.storage.manager.class.name | string | | r | | The class that stores remote segments.
remote.log.storage.manager.class.path | string | | r | | Where that class is.
remote.log.storage.manager.impl.prefix | string | rsm.config. | r | | How its settings begin.
remote.log.storage.system.enable | boolean | false | r | | Whether segments may be copied to an object store.
""",
)
SHARE: Final = Section(
    "Share groups",
    "there are no share groups yet.",
    True,
    """\
group.share.assignors | list | simple | r | | How partitions are assigned.
group.share.delivery.count.limit | int | 5 | r | 2.. | How often a record is given out before it is given up.
group.share.heartbeat.interval.ms | int | 5000 | r | 1.. | How often members are told to send a heartbeat.
group.share.max.delivery.count.limit | int | 10 | r | 2.. | The most that a group may set for it.
group.share.max.heartbeat.interval.ms | int | 15000 | r | 1.. | The longest heartbeat interval of a group.
group.share.max.partition.max.record.locks | int | 4000 | r | 100.. | The most records of a partition that may be out.
group.share.max.record.lock.duration.ms | int | 60000 | r | 1000.. | The longest that a record may be out.
group.share.max.session.timeout.ms | int | 60000 | r | 1.. | The longest session time-out of a group.
group.share.max.share.sessions | int | 2000 | r | 1.. | The most sessions of a broker.
group.share.max.size | int | 200 | r | 1.. | The most members of a group.
group.share.min.delivery.count.limit | int | 2 | r | 2.. | The least that a group may set for it.
group.share.min.heartbeat.interval.ms | int | 5000 | r | 1.. | The shortest heartbeat interval of a group.
group.share.min.partition.max.record.locks | int | 100 | r | 100.. | The least records that may be out.
group.share.min.record.lock.duration.ms | int | 15000 | r | 1000.. | The shortest that a record may be out.
group.share.min.session.timeout.ms | int | 45000 | r | 1.. | The shortest session time-out of a group.
group.share.partition.max.record.locks | int | 2000 | r | 100.. | How many records of a partition may be out at once.
group.share.record.lock.duration.ms | int | 30000 | r | 1000.. | How long a member has a record for itself.
group.share.session.timeout.ms | int | 45000 | r | 1.. | How long a member is not heard of before it is out.
""",
)
SHARE_COORDINATOR: Final = Section(
    "The coordinator of share groups",
    "There are no share groups yet, so there is no coordinator for them, and no topic for their state.",
    False,
    """\
share.coordinator.append.linger.ms | int | -1 | r | -1.. | How long a write waits for more.
share.coordinator.cached.buffer.max.bytes | int | 1048588 | c | 524288.. | The memory kept for the next write.
share.coordinator.load.buffer.size | int | 5242880 | r | 1.. | How much is read at once when a coordinator loads.
share.coordinator.snapshot.update.records.per.snapshot | int | 500 | r | 0.. | The changes between two snapshots.
share.coordinator.state.topic.compression.codec | int | 0 | r | | The codec of the state topic.
share.coordinator.state.topic.min.isr | short | 2 | r | 1.. | The in-sync replicas of the state topic.
share.coordinator.state.topic.num.partitions | int | 50 | r | 1.. | The partitions of the state topic.
share.coordinator.state.topic.replication.factor | short | 3 | r | 1.. | The replicas of the state topic.
share.coordinator.state.topic.segment.bytes | int | 104857600 | r | 1.. | The segments of the state topic.
share.coordinator.threads | int | 1 | r | 1.. | The threads of the coordinator.
share.coordinator.write.timeout.ms | int | 5000 | r | 1.. | How long a write may take.
""",
)
STREAMS: Final = Section(
    "Streams groups",
    "there are no streams groups yet.",
    True,
    """\
group.streams.heartbeat.interval.ms | int | 5000 | r | 1.. | How often members are told to send a heartbeat.
group.streams.initial.rebalance.delay.ms | int | 3000 | r | 0.. | How long the first rebalance waits for more members.
group.streams.max.heartbeat.interval.ms | int | 15000 | r | 1.. | The longest heartbeat interval of a group.
group.streams.max.session.timeout.ms | int | 60000 | r | 1.. | The longest session time-out of a group.
group.streams.max.size | int | 2147483647 | r | 1.. | The most members of a group.
group.streams.max.standby.replicas | int | 2 | r | 0.. | The most standby replicas of a group.
group.streams.min.heartbeat.interval.ms | int | 5000 | r | 1.. | The shortest heartbeat interval of a group.
group.streams.min.session.timeout.ms | int | 45000 | r | 1.. | The shortest session time-out of a group.
group.streams.num.standby.replicas | int | 0 | r | 0.. | How many standby replicas tasks have.
group.streams.session.timeout.ms | int | 45000 | r | 1.. | How long a member is not heard of before it is out.
""",
)

SECTIONS: Final = (
    THREADS,
    SYSTEM,
    ONE_NODE,
    METADATA,
    MEASURES,
    PLUGINS,
    ROLES,
    SHUTDOWN,
    NEW_CONNECTIONS,
    TIERED,
    SHARE,
    SHARE_COORDINATOR,
    STREAMS,
    Section(
        "Security", "there is no security yet: connections are plain, and everyone may do everything.", True, SECURITY
    ),
    Section("Times of security", "There is no security yet, which is what they would count for.", False, TIMES),
)

_MODES: Final = {"r": Change.RESTART, "c": Change.CLUSTER, "b": Change.BROKER}


def _setting(row: str, section: Section) -> Setting:
    name, kind_name, default, mode, *bounds, doc = (cell.strip() for cell in row.split(" |"))
    kind = Kind[kind_name.upper()]
    more: dict[str, Any] = {}
    if bounds and bounds[0]:
        more["least"] = int(bounds[0].removesuffix(".."))
    setting = Setting(kind, None, doc, change=_MODES[mode], name=name, why=section.why, **more)
    if default:
        setting.default = setting.parse(default)
    elif kind is Kind.LIST:
        setting.default = ()
    setting.refuses = section.refuses
    return setting


def settings_of(section: Section) -> list[Setting]:
    return [_setting(row, section) for row in section.rows.splitlines()]


@cache
def known_settings() -> dict[str, Setting]:
    """By name. Read when one of them is looked for: a node that is given none does without."""
    return {setting.name: setting for section in SECTIONS for setting in settings_of(section)}
