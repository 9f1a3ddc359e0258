"""Types at the kernel's border that neither a .pxd nor a .py can say: what containers hold, what may be None, calls.

A key is module.function.parameter or module.Class.member.parameter; "()" instead of a parameter is what is returned.
Where an attribute has a type, parameters of that name have it too. Any: the kernel only carries it for its owner.
"""

from __future__ import annotations

from typing import Final

_SEND_KEY: Final = "tuple[int, Account | None, bytes, bytes]"
_PULL_KEY: Final = "tuple[int, Account | None, bytes]"
_TEMPLATES: Final = "tuple[AnswerTemplate, AnswerTemplate, AnswerTemplate, AnswerTemplate]"
_PARTS: Final = "tuple[int, int, int, int, str | int, str, dict[str, str], bytes, int] | None"

TYPES: Final = {
    # admission
    "admission.Generation.bump.anything": "object",
    "admission.Grant.account": "Account | None",
    "admission.Grant.queues": "list[QueueTail | None]",
    "admission.Grant.limit.buckets": "Sequence[TokenBucket]",
    "admission.Grant.collect()": "tuple[int, int, int]",
    "admission.SendGrant.templates": _TEMPLATES,
    "admission.SendGrant.delay_queues": "list[QueueTail | None]",
    "admission.SendGrant.delayed": "SendGrant | None",
    "admission.SendGrant.delay_by.queues": "list[QueueTail | None]",
    "admission.SendGrant.delay_by.delayed": "SendGrant",
    "admission.PullGrant.key": _PULL_KEY,
    "admission.PullGrant.tag_codes": "Container[int] | None",
    "admission.PullGrant.positions": "dict[int, int]",
    "admission.PullGrant.commits": "dict[int, int]",
    "admission.PullGrant.__init__.numbers": "tuple[int, int, int, int]",
    # answers
    "answers.AnswerTemplate.__init__.pieces": "Sequence[bytes]",
    "answers.AnswerBuffer.encode.values": "list[bytes]",
    "answers.AnswerBuffer.encode()": "bytes",
    # appender
    "appender.Appender.segment": "MappedBuffer | None",
    "appender.Appender.index": "IndexTail | None",
    "appender.Appender.roll_index": "Callable[[IndexTail], IndexTail | None] | None",
    "appender.Appender.delays_ms": "list[int]",
    "appender.Appender.touched": "list[QueueTail]",
    "appender.Appender.batch_offsets": "list[int]",
    "appender.Appender.measure_batch()": "tuple[int, int]",
    # batch_encode
    "batch_encode.TextSource.__init__.ends": "Buffer",
    "batch_encode.TextSource.__init__.data": "Buffer | None",
    "batch_encode.TextSource.__init__.valid": "Buffer | None",
    "batch_encode.NumberSource.__init__.numbers": "Buffer",
    "batch_encode.NumberSource.__init__.valid": "Buffer | None",
    "batch_encode.BatchEncoder.body": "TextSource | None",
    "batch_encode.BatchEncoder.tags": "TextSource | None",
    "batch_encode.BatchEncoder.keys": "TextSource | None",
    "batch_encode.BatchEncoder.sharding_key": "TextSource | None",
    "batch_encode.BatchEncoder.delay_level": "NumberSource | None",
    "batch_encode.BatchEncoder.deliver_ms": "NumberSource | None",
    "batch_encode.BatchEncoder.ordinal": "NumberSource | None",
    "batch_encode.BatchEncoder._left_out": "Container[bytes]",
    "batch_encode.BatchEncoder.faults": "list[tuple[int, int]]",
    # buffers
    "buffers.MappedBuffer.__init__.source": "Buffer",
    "buffers.MappedBuffer.bytes_at()": "bytes",
    "buffers.MappedBuffer.crc32()": "int",
    "buffers.MappedBuffer.memory()": "memoryview",
    # fast_frames
    "fast_frames.FastFrames.accounts": "Accounts | None",
    "fast_frames.FastFrames.refused": "ParsedFrame | None",
    "fast_frames.FastFrames.refused_parts()": _PARTS,
    # fast_path
    "fast_path.FastPath.held": "list[tuple[FastConnection, bytes]]",
    "fast_path.FastPath.__init__.store": "StorePort",
    "fast_path.FastPath._dispatcher": "AnswerSlots",
    "fast_path.FastPath.__init__.clocks": "tuple[Callable[[], int], Callable[[], int]]",
    "fast_path.FastPath._call_soon": "Callable[[Callable[[], object]], object]",
    "fast_path.FastPath._finish_turn": "Callable[[], object]",
    "fast_path.FastPath._waiting": "Callable[[], bool]",
    "fast_path.FastPath.take_held()": "tuple[list[tuple[FastConnection, bytes]], int]",
    "fast_path.FastPath.serve_rest()": "bytes",
    "fast_path.FastConnection.owner": "ConnectionOwner",
    "fast_path.FastConnection.decoder": "Any",
    "fast_path.FastConnection.attach.transport": "Transport",
    "fast_path.FastConnection.take()": "bytes",
    "fast_path.FastConnection.eof_received()": "bool | None",
    "fast_path.FastConnection.connection_lost.error": "Exception | None",
    # fast_pulls
    "fast_pulls.PullLimits.__init__.given": "int",
    "fast_pulls.FastPulls.missed": f"list[tuple[{_PULL_KEY}, int]]",
    "fast_pulls.FastPulls.served": "list[PullGrant]",
    "fast_pulls.FastPulls._visible_to": "Callable[[], int]",
    "fast_pulls.FastPulls._templates": _TEMPLATES,
    "fast_pulls.FastPulls.grant_of.key": _PULL_KEY,
    "fast_pulls.FastPulls.grant_of()": "PullGrant | None",
    # fast_sends
    "fast_sends.FastSends.missed": f"list[tuple[{_SEND_KEY}, int]]",
    "fast_sends.FastSends.grown": "list[SendGrant]",
    "fast_sends.FastSends.grant_of.key": _SEND_KEY,
    "fast_sends.FastSends.grant_of()": "SendGrant | None",
    # filter_program
    "filter_program.FilterProgram.names": "tuple[bytes, ...]",
    "filter_program.FilterProgram.__init__.names": "Sequence[bytes]",
    "filter_program.FilterProgram.__init__.code": "Sequence[Sequence[int]]",
    "filter_program.FilterProgram.__init__.constants": "Sequence[tuple[int, Any]]",
    "filter_program.FilterProgram.verdict()": "int",
    # index_units
    "index_units.IndexTail.search()": "list[int]",
    "index_units.IndexTail.unit()": "tuple[int, int, int, int]",
    "index_units.IndexTail.check()": "str | None",
    # properties
    "properties.hash_text.text": "str",
    "properties.hash_text.seed": "int",
    "properties.hash_text()": "int",
    # queue_cache
    "queue_cache.QueueCache.queue": "QueueTail | None",
    "queue_cache.QueueCache.grant": "SendGrant | None",
    # queue_units
    "queue_units.QueueTail.owner": "Any",
    "queue_units.QueueTail.units": "MappedBuffer | None",
    "queue_units.QueueTail.extensions": "Any",
    "queue_units.QueueTail.attach.units": "MappedBuffer",
    "queue_units.QueueTail.put_next.log_offset": "int",
    "queue_units.QueueTail.put_next.size": "int",
    "queue_units.QueueTail.put_next.tags_code": "int",
    "queue_units.unit_at()": "tuple[int, int, int]",
    # reader
    "reader.LogMap.used": "set[int]",
    "reader.LogMap.detach.base": "int",
    "reader.LogMap.idle()": "list[int]",
    "reader.LogMap.segment_of()": "MappedBuffer | None",
    "reader.QueueRead.records": "bytes",
    "reader.ReadRequest.tag_codes": "Container[int] | None",
    "reader.ReadRequest.unit_filter": "Callable[[int], bool] | None",
    "reader.ReadRequest.record_filter": "FilterProgram | Callable[[bytes], bool] | None",
    "reader.copy_places()": "tuple[int, int, int]",
    # record_columns
    "record_columns.RecordRows.topics": "Container[bytes] | None",
    "record_columns.RecordRows.queue_ids": "Container[int] | None",
    "record_columns.RecordRows.compressed": "list[int]",
    "record_columns.RecordRows.hide.names": "Iterable[bytes]",
    "record_columns.RecordRows.row()": "tuple[bytes, int, bytes, bytes]",
    "record_columns.RecordRows.fill.bodies": "list[bytes]",
    "record_columns.RecordRows.fill.hosts": "tuple[list[bytes], list[bytes]] | tuple[()]",
    "record_columns.RecordRows.collect()": "int",
    # records
    "records.find_next_record()": "int",
    "records.first_nonzero()": "int",
    # redeliver
    "redeliver.Redelivery.waiting": "QueueTail | None",
    "redeliver.Redelivery.add_destination.topic": "bytes",
    "redeliver.Redelivery.add_destination.queue_id": "int",
    "redeliver.Redelivery.add_destination.tail": "QueueTail | None",
    "redeliver.Redelivery.destinations()": "list[Destination]",
    # request_view
    "request_view.RequestView.command_parts()": _PARTS,
    "request_view.RequestView.parse_frame()": "bool",
    # scanner
    "scanner.Scanner.queues": "dict[bytes, list[QueueTail | None]]",
    "scanner.Scanner.resolve": "Callable[[bytes, int], QueueTail | None] | None",
    "scanner.Scanner.misfit": "Callable[[QueueTail, int, int, int, int], object] | None",
    "scanner.Scanner.roll_index": "Callable[[IndexTail], IndexTail | None] | None",
    "scanner.Scanner.cross": "Callable[[int], object] | None",
    "scanner.Scanner.index": "IndexTail | None",
    "scanner.Scanner.delays_ms": "list[int]",
    "scanner.Scanner.touched": "list[QueueTail]",
    "scanner.check_index_units()": "tuple[int, int]",
    "scanner.walk_records()": "tuple[int, int, int, int]",
    # signatures
    "signatures.Account.owner": "Any",
    "signatures.Account.__init__.secrets": "Sequence[bytes]",
    "signatures.Accounts.get()": "Account | None",
    "signatures.SignatureCheck.signer_of()": "Account | None",
}
