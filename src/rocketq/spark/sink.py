"""format("rocketmq"), writing: what Spark calls, and who does the work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rocketq.client.blocking import BlockingClient
from rocketq.client.blocking.sender import HalfHandle, TransactionEnds
from rocketq.errors import RemotingError
from rocketq.protocol.failures import TopicNotFoundError
from rocketq.spark.errors import OptionError, SparkError, plainly
from rocketq.spark.exactly_once import Batch, HalfWriter, Halves, abort_batch, commit_batch, require_settles_once
from rocketq.spark.manifest import ManifestFolder
from rocketq.spark.options import Connection
from rocketq.spark.reader import client_of
from rocketq.spark.sink_options import SinkOptions, parse_sink
from rocketq.spark.sink_schema import check_schema
from rocketq.spark.writer import TaskId, TaskWriter, Written

# The names of Spark's local properties are its own affair; a batch job has neither.
_QUERY_PROPERTY = "sql.streaming.queryId"
_BATCH_PROPERTY = "streaming.sql.batchId"


@dataclass
class TaskDone(WriterCommitMessage):
    """The message of a task to the driver."""

    written: Written
    task: TaskId
    halves: Halves = field(default_factory=Halves)


class BatchWriter(DataSourceArrowWriter):
    """At least once: a task that Spark runs again sends its rows again."""

    @plainly
    def __init__(self, schema: StructType, options: dict[str, str], *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError('a topic cannot be overwritten: write with mode("append")')
        self._options = parse_sink(options, streaming=False)
        check_schema(schema, self._options)

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _send(iterator, self._options)


class StreamWriter(DataSourceStreamArrowWriter):
    """Created for each batch and each commit: lasting state is in the messages of tasks and in manifests."""

    @plainly
    def __init__(self, schema: StructType, options: dict[str, str]) -> None:
        self._options = parse_sink(options, streaming=True)
        check_schema(schema, self._options)
        if self._options.is_exactly_once:
            _refuse_early(self._options)

    # On executors

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if not self._options.is_exactly_once:
            return _send(iterator, self._options)
        task = _task()
        if task.query is None or task.batch is None:
            raise SparkError("this Spark does not tell tasks their query and batch: exactly-once cannot be kept")
        writer = HalfWriter(client_of(self._options.connection), self._options, task)
        return TaskDone(writer.write(iterator), task, writer.halves)

    # On the driver

    @plainly
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if self._options.is_exactly_once and (done := _done(messages)):
            with _client(self._options.connection) as client:
                batch = _batch(done, batchId, self._options)
                commit_batch(batch, _handles(done), self._manifests(), self._ends(client))

    @plainly
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if self._options.is_exactly_once and (done := _done(messages)):
            with _client(self._options.connection) as client:
                batch = _batch(done, batchId, self._options)
                abort_batch(batch, _handles(done), self._manifests(), self._ends(client))

    def _manifests(self) -> ManifestFolder:
        assert self._options.manifests is not None
        return ManifestFolder(self._options.manifests)

    def _ends(self, client: BlockingClient) -> TransactionEnds:
        options = self._options
        return TransactionEnds(client, timeout_ms=options.timeout_ms, retries=options.retries)


def _send(batches: Iterator[pa.RecordBatch], options: SinkOptions) -> TaskDone:
    task = _task()
    return TaskDone(TaskWriter(client_of(options.connection), options, task).write(batches), task)


def _task() -> TaskId:
    context = TaskContext.get()
    if context is None:
        return TaskId(0)
    query, batch = context.getLocalProperty(_QUERY_PROPERTY), context.getLocalProperty(_BATCH_PROPERTY)
    return TaskId(context.partitionId(), query, int(batch) if batch is not None else None)


def _client(connection: Connection) -> BlockingClient:
    return BlockingClient(connection.name_servers, credentials=connection.credentials, tls=connection.tls)


def _refuse_early(options: SinkOptions) -> None:
    """Checks on the driver, so that an error is one line; brokers that do not answer now are left to the tasks."""
    if options.topic is None:
        return
    with _client(options.connection) as client:
        try:
            brokers = client.route(options.topic).brokers
            for broker in brokers:
                for addr in list(broker.addrs.values())[:1]:
                    require_settles_once(client, broker.broker_name, addr)
        except (RemotingError, TopicNotFoundError):
            return


def _done(messages: Sequence[WriterCommitMessage | None]) -> list[TaskDone]:
    return [message for message in messages if isinstance(message, TaskDone)]


def _handles(done: Sequence[TaskDone]) -> list[HalfHandle]:
    return [handle for message in done for handle in message.halves.handles()]


def _batch(done: Sequence[TaskDone], number: int, options: SinkOptions) -> Batch:
    queries = {message.task.query for message in done}
    if len(queries) != 1 or None in queries:
        raise SparkError(f"tasks of batch {number} do not agree on their query: {queries}")
    return Batch(str(queries.pop()), number, options.group)
