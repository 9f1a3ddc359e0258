"""JSON bodies: the forms of Apache 4.7.1, and what other clients make of them."""

from __future__ import annotations

import contextlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.errors import RemoteProtocolError
from rocketq.protocol.bodies import Body
from rocketq.protocol.bodies.accounts import AccessConfig, SubjectPolicies, User
from rocketq.protocol.bodies.assignment import (
    AssignmentAnswer,
    AssignmentRequest,
    BatchAcks,
    GroupRequestMode,
    LockAnswer,
    LockRequest,
    RequestModes,
    ack_bits,
)
from rocketq.protocol.bodies.clients import (
    CheckClient,
    ConsumeDirectlyResult,
    ConsumerConnections,
    ConsumerList,
    Heartbeat,
    ProducerConnections,
    ProducerTable,
    RunningConsumer,
    Subscription,
)
from rocketq.protocol.bodies.groups import GroupConfigTable, GroupForbidden, GroupList, GroupSubscription
from rocketq.protocol.bodies.offsets import (
    ConsumerOffsets,
    ConsumerStatus,
    CorrectionOffsets,
    DelayOffsets,
    OffsetMoved,
    ResetOffsets,
    TimeSpans,
)
from rocketq.protocol.bodies.queues import DataVersion, KeyValues, MessageQueue
from rocketq.protocol.bodies.registration import Registration, decode_registration
from rocketq.protocol.bodies.routes import ClusterTable, MemberGroupAnswer, TopicRoute
from rocketq.protocol.bodies.stats import ConsumeStats, ConsumeStatsList, QueueEntries, StatsData
from rocketq.protocol.bodies.topics import TopicConfigTable, TopicList, TopicStats
from rocketq.protocol.flags import ConsumeFromWhere, ConsumeType, MessageModel

SUBSCRIPTION = (
    '{"classFilterMode":false,"codeSet":[2598919,2598920],"expressionType":"TAG","subString":"TagA || TagB",'
    '"subVersion":1600000000000,"tagsSet":["TagA","TagB"],"topic":"TopicTest"}'
)
QUEUE = '{"brokerName":"broker-a","queueId":0,"topic":"TopicTest"}'
TOPICS = (
    '{"dataVersion":{"counter":7,"timestamp":1600000000000},"topicConfigTable":{"TopicTest":{"order":false,"perm":6,'
    '"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"TopicTest","topicSysFlag":0,"writeQueueNums":4}}}'
)

EXAMPLES: list[tuple[type[Body], str]] = [
    (DataVersion, '{"counter":7,"timestamp":1600000000000}'),
    (DataVersion, '{"counter":7,"stateVersion":0,"timestamp":1600000000000}'),
    (
        TopicRoute,
        '{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"broker-a",'
        '"cluster":"DefaultCluster"}],"filterServerTable":{},"orderTopicConf":"broker-a:4","queueDatas":[{"brokerName":'
        '"broker-a","perm":6,"readQueueNums":4,"topicSynFlag":0,"topicSysFlag":0,"writeQueueNums":4}]}',
    ),
    (
        ClusterTable,
        '{"brokerAddrTable":{"broker-a":{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a","cluster":'
        '"DefaultCluster"}},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}',
    ),
    (
        MemberGroupAnswer,
        '{"brokerMemberGroup":{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"C"}}',
    ),
    (TopicConfigTable, TOPICS),
    (Registration, '{"filterServerList":[],"topicConfigSerializeWrapper":' + TOPICS + "}"),
    (
        Heartbeat,
        '{"clientID":"10.0.0.9@12345","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":'
        '"CONSUME_PASSIVELY","groupName":"CG","messageModel":"CLUSTERING","subscriptionDataSet":['
        + SUBSCRIPTION
        + '],"unitMode":false}],"producerDataSet":[{"groupName":"PG"}]}',
    ),
    (CheckClient, '{"clientId":"10.0.0.9@1","group":"CG","subscriptionData":' + SUBSCRIPTION + "}"),
    (
        ConsumerConnections,
        '{"connectionSet":[{"clientAddr":"10.0.0.9:50123","clientId":"10.0.0.9@12345","language":"JAVA","version":355}],'
        '"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
        '"subscriptionTable":{"TopicTest":' + SUBSCRIPTION + "}}",
    ),
    (
        ProducerConnections,
        '{"connectionSet":[{"clientAddr":"10.0.0.9:50123","clientId":"10.0.0.9@12345","language":"JAVA","version":355}]}',
    ),
    (
        ProducerTable,
        '{"data":{"p1":[{"clientId":"c","language":"JAVA","lastUpdateTimestamp":1,"remoteIP":"/10.0.0.9:1","version":407}]}}',
    ),
    (
        GroupConfigTable,
        '{"dataVersion":{"counter":7,"timestamp":1600000000000},"subscriptionGroupTable":{"CG":{"brokerId":0,'
        '"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,"groupName":"CG",'
        '"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}}}',
    ),
    (ConsumerOffsets, '{"offsetTable":{"TopicTest@CG":{"0":10,"1":5}}}'),
    (DelayOffsets, '{"offsetTable":{"1":0,"3":17}}'),
    (
        LockRequest,
        '{"clientId":"10.0.0.9@12345","consumerGroup":"CG","mqSet":[' + QUEUE + "]}",
    ),
    (LockAnswer, '{"lockOKMQSet":[' + QUEUE + "]}"),
    (
        ConsumeStats,
        '{"consumeTps":1.5,"offsetTable":{' + QUEUE + ':{"brokerOffset":100,"consumerOffset":90,"lastTimestamp":16}}}',
    ),
    (
        ConsumeStatsList,
        '{"brokerAddr":"10.0.0.1:10911","consumeStatsList":[{"CG":[{"consumeTps":0.0,"offsetTable":{}}]}],"totalDiff":10}',
    ),
    (TopicStats, '{"offsetTable":{' + QUEUE + ':{"lastUpdateTimestamp":16,"maxOffset":100,"minOffset":0}}}'),
    (
        RunningConsumer,
        '{"mqTable":{' + QUEUE + ':{"cachedMsgCount":0,"cachedMsgMaxOffset":0,"cachedMsgMinOffset":0,'
        '"cachedMsgSizeInMiB":0,"commitOffset":0,"droped":false,"lastConsumeTimestamp":0,"lastLockTimestamp":0,'
        '"lastPullTimestamp":0,"locked":false,"transactionMsgCount":0,"transactionMsgMaxOffset":0,'
        '"transactionMsgMinOffset":0,"tryUnlockTimes":0}},"properties":{"PROP_CONSUME_TYPE":"CONSUME_PASSIVELY"},'
        '"statusTable":{"TopicTest":{"consumeFailedMsgs":0,"consumeFailedTPS":0.0,"consumeOKTPS":0.0,"consumeRT":0.0,'
        '"pullRT":0.0,"pullTPS":0.0}},"subscriptionSet":[' + SUBSCRIPTION + "]}",
    ),
    (KeyValues, '{"table":{"brokerVersion":"355"}}'),
    (ConsumerList, '{"consumerIdList":["10.0.0.9@1","10.0.0.9@2"]}'),
    (ResetOffsets, '{"offsetTable":{' + QUEUE + ":10}}"),
    (ConsumerStatus, '{"consumerTable":{"c@1":{' + QUEUE + ':20}},"messageQueueTable":{' + QUEUE + ":10}}"),
    (
        TimeSpans,
        '{"consumeTimeSpanSet":[{"consumeTimeStamp":1,"consumeTimeStampStr":"1970-01-01#00:00:00:001","delayTime":3,'
        '"maxTimeStamp":2,"maxTimeStampStr":"1970-01-01#00:00:00:002","messageQueue":' + QUEUE + ',"minTimeStamp":1,'
        '"minTimeStampStr":"1970-01-01#00:00:00:001"}]}',
    ),
    (ConsumeDirectlyResult, '{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":12}'),
    (CorrectionOffsets, '{"correctionOffsets":{"0":5}}'),
    (GroupList, '{"groupList":["CG"]}'),
    (GroupForbidden, '{"group":"g","readable":true,"topic":"T"}'),
    (GroupSubscription, '{"group":"g","subscriptionData":' + SUBSCRIPTION + ',"topic":"T"}'),
    (TopicList, '{"topicList":["TopicTest"]}'),
    (
        StatsData,
        '{"statsDay":{"avgpt":0.0,"sum":0,"tps":0.0},"statsHour":{"avgpt":0.0,"sum":0,"tps":0.0},'
        '"statsMinute":{"avgpt":3.66,"sum":22,"tps":0.44}}',
    ),
    (
        QueueEntries,
        '{"filterData":"null","maxQueueIndex":3,"minQueueIndex":0,"queueData":[{"eval":false,"physicOffset":0,'
        '"physicSize":0,"tagsCode":0}],"subscriptionData":' + SUBSCRIPTION + "}",
    ),
    (OffsetMoved, '{"consumerGroup":"CG","messageQueue":' + QUEUE + ',"offsetNew":5,"offsetRequest":99}'),
    (
        AssignmentRequest,
        '{"clientId":"c","consumerGroup":"CG","messageModel":"CLUSTERING","strategyName":"AVG","topic":"TopicTest"}',
    ),
    (AssignmentAnswer, '{"messageQueueAssignments":[{"messageQueue":' + QUEUE + ',"mode":"PULL"}]}'),
    (GroupRequestMode, '{"consumerGroup":"CG","mode":"POP","popShareQueueNum":0,"topic":"TopicTest"}'),
    (RequestModes, '{"messageRequestModeMap":{}}'),
    (
        BatchAcks,
        '{"acks":[{"b":"Bw==","c":"CG","it":60000,"pt":1600000000000,"q":0,"r":"0","rq":3,"so":100,"t":"TopicTest"}],'
        '"brokerName":"broker-a"}',
    ),
    (
        AccessConfig,
        '{"globalWhiteAddrs":["127.0.0.1"],"plainAccessConfigs":[{"accessKey":"alice","admin":false,"defaultGroupPerm":'
        '"SUB","defaultTopicPerm":"PUB","groupPerms":["g=SUB"],"secretKey":"secret123","topicPerms":["T=PUB|SUB"],'
        '"whiteRemoteAddress":"10.0.0.*"}]}',
    ),
    (User, '{"password":"pw1","userStatus":"enable","userType":"Normal","username":"alice"}'),
    (
        SubjectPolicies,
        '{"policies":[{"entries":[{"actions":["Pub"],"decision":"Allow","resource":"Topic:T","sourceIps":["10.0.0.0/8"]}],'
        '"policyType":"Custom"}],"subject":"User:alice"}',
    ),
]


@pytest.mark.parametrize(("kind", "text"), EXAMPLES, ids=lambda value: getattr(value, "__name__", ""))
def test_body_reads_and_writes_back(kind: type[Body], text: str) -> None:
    """Goal: the bodies Apache writes survive, byte for byte, with quoted numeric keys."""
    assert kind.decode(text.encode()).encode() == text.encode()


def test_a_cpp_heartbeat_is_understood() -> None:
    """Goal: ordinals for names, numbers as texts, sets left out or null."""
    text = (
        '{"clientID":"c","consumerDataSet":[{"groupName":"CG","consumeType":1,"messageModel":1,"consumeFromWhere":4,'
        '"subscriptionDataSet":[{"topic":"T","subString":"TagA","subVersion":"1600000000000","codeSet":["0"]}]}],'
        '"producerDataSet":null}'
    )
    (consumer,) = Heartbeat.decode(text.encode()).consumers
    assert consumer.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert consumer.model is MessageModel.CLUSTERING
    assert consumer.from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert consumer.subscriptions == (Subscription(topic="T", expression="TagA", version=1600000000000, codes=(0,)),)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[]", "Heartbeat"),
        ("{}", "clientID"),
        ('{"clientID":"c","producerDataSet":{}}', "producerDataSet"),
        ('{"clientID":"c","producerDataSet":[5]}', "ProducerData"),
        ('{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":[]}]}', "consumeType"),
        ('{"clientID":"c","heartbeatFingerprint":"x"}', "heartbeatFingerprint"),
        ('{"clientID":"c","withoutSub":[]}', "withoutSub"),
    ],
)
def test_a_bad_member_is_named(text: str, named: str) -> None:
    with pytest.raises(RemoteProtocolError, match=named):
        Heartbeat.decode(text.encode())


def test_unknown_members_and_names_are_ignored() -> None:
    text = (
        '{"clientID":"c","new":1,"consumerDataSet":[{"groupName":"g","consumeType":"CONSUME_SOON","messageModel":9}]}'
    )
    (consumer,) = Heartbeat.decode(text.encode()).consumers
    assert consumer.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert consumer.model is MessageModel.CLUSTERING


def test_queue_keys_may_be_texts() -> None:
    """Goal: fastjson also takes the key's JSON as a text, so we do."""
    queue = MessageQueue(topic="TopicTest", broker_name="broker-a", queue_id=0)
    text = '{"offsetTable":{"{\\"brokerName\\":\\"broker-a\\",\\"queueId\\":0,\\"topic\\":\\"TopicTest\\"}":10}}'
    assert ResetOffsets.decode(text.encode()).offsets == {queue: 10}


def test_a_table_written_once_and_mentioned_twice_is_followed() -> None:
    text = '{"consumerTable":{"c@1":{' + QUEUE + ':20}},"messageQueueTable":{"$ref":"$.consumerTable.c\\\\@1"}}'
    status = ConsumerStatus.decode(text.encode())
    assert status.queues == status.consumers["c@1"] != {}


def test_both_flag_names_of_a_route_are_read() -> None:
    for name in ("topicSynFlag", "topicSysFlag"):
        route = TopicRoute.decode(
            ('{"queueDatas":[{"brokerName":"b","' + name + '":1}],"filterServerTable":null}').encode()
        )
        assert route.queues[0].topic_sys_flag == 1
        assert route.filter_servers == {}


def test_a_missing_assignment_is_not_an_empty_one() -> None:
    assert AssignmentAnswer.decode(b"{}").assignments is None
    assert AssignmentAnswer.decode(b'{"messageQueueAssignments":[]}').assignments == ()


def test_batch_acks_name_offsets_by_bits() -> None:
    (ack,) = BatchAcks.decode(dict(EXAMPLES)[BatchAcks].encode()).acks
    assert ack.offsets == (100, 101, 102)
    assert ack_bits(100, ack.offsets) == ack.bits
    long_names = (
        '{"acks":[{"bitSet":"!","consumerGroup":"CG","invisibleTime":1,"popTime":2,"queueId":0,"reviveQueueId":3,'
    )
    (named,) = BatchAcks.decode((long_names + '"startOffset":1,"topic":"T"}]}').encode()).acks
    with pytest.raises(RemoteProtocolError):
        _ = named.offsets


COMPRESSED = bytes.fromhex(
    "78DA63606050AF564ACE2FCD2B492D52B232D7512AC9CC4D2D2E49CC2D50B232343340805A0606064620960AC92FC84C0E01AA513001423385"
    "604F3F771FD7F8104777A02C53742C00811A1459"
)
INFLATED = bytes.fromhex(
    "00000027 7B22636F756E746572223A372C2274696D657374616D70223A313630303030303030303030307D 00000001 0000001A"
    "546F706963546573742034203420362053494E474C455F544147 00000002 5B5D"
)


def test_a_compressed_registration_is_that_of_java() -> None:
    """Goal: what Apache compressed reads as the plain form does, and ours inflates to the same bytes."""
    plain = Registration.decode(dict(EXAMPLES)[Registration].encode())
    assert decode_registration(COMPRESSED, compressed=True, version=355) == plain
    assert zlib.decompress(plain.encode_compressed()) == INFLATED


def test_a_newer_compressed_registration_has_attributes_and_mappings() -> None:
    plain = Registration.decode(dict(EXAMPLES)[Registration].encode())
    newer = zlib.decompress(plain.encode_compressed(479))
    assert newer.endswith(b"SINGLE_TAG {}" + bytes.fromhex("00000002 5B5D 00000000"))
    (topic,) = decode_registration(zlib.compress(newer), compressed=True, version=479).topics.topics.values()
    assert topic.attributes == {}


def test_old_and_empty_registrations() -> None:
    bare = dict(EXAMPLES)[TopicConfigTable].encode()
    assert decode_registration(bare, compressed=False, version=36).topics == TopicConfigTable.decode(bare)
    assert decode_registration(b"", compressed=True, version=355) == Registration()


@pytest.mark.parametrize(
    "inflated",
    [
        INFLATED[:-1],
        INFLATED[:50],
        b"",
        INFLATED.replace(b"4 4 6", b"4 4"),
        INFLATED.replace(b"[]", b"{}"),
        b"\xff" * 20,
    ],
)
def test_a_damaged_compressed_registration_is_refused(inflated: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_registration(zlib.compress(inflated), compressed=True, version=355)


def test_a_registration_that_is_no_zlib_stream_is_refused() -> None:
    for data in (b"junk", COMPRESSED[:-3]):
        with pytest.raises(RemoteProtocolError):
            decode_registration(data, compressed=True, version=355)


@given(st.sampled_from(EXAMPLES), st.data())
def test_damaged_bodies_are_read_or_refused(example: tuple[type[Body], str], data: st.DataObject) -> None:
    """Goal: whatever one changed byte does, nothing but a protocol error comes out."""
    kind, text = example
    raw = bytearray(text.encode())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.sampled_from(b'{}[]:,"0a-.\\\xff'))
    with contextlib.suppress(RemoteProtocolError):
        kind.decode(bytes(raw)).encode()
