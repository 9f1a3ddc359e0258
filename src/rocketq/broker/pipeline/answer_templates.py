"""Answer templates for sends and pulls, used by both paths; made from encoded sample answers."""

from __future__ import annotations

from typing import Final, Protocol

from rocketq.broker.admin.settings import Settings
from rocketq.broker.config import BrokerConfig
from rocketq.kernel.answers import AnswerBuffer, AnswerTemplate
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.command import Command, HeaderForm
from rocketq.protocol.frame import encode_command
from rocketq.protocol.headers.pull import PullResponse
from rocketq.protocol.headers.send import SendResponse
from rocketq.protocol.headers.wire import Header
from rocketq.remoting import Reply
from rocketq.store import AppendResult, ReadStatus

Templates = tuple[AnswerTemplate, AnswerTemplate, AnswerTemplate, AnswerTemplate]
"""JSON, JSON with more fields, binary, binary with more fields."""


class _Sample(Protocol):
    def __call__(self, form: HeaderForm, *, more: bool) -> AnswerTemplate: ...


_HEAD_BYTES: Final = 8
_REMARK_AT: Final = 17
_OPAQUE: Final = 987_654_321
_NUMBERS: Final = (111_111, 222_222, 333_333, 444_444, 555_555, 666_666)


class SendAnswers:
    """Encodes answers to stored messages for the slow path."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._config: BrokerConfig | None = None
        self._templates: Templates | None = None
        self._buffer = AnswerBuffer()

    def encode(self, request: Command, result: AppendResult, queue_id: int, transaction_id: str | None) -> bytes:
        """The frame that answers a request whose message is stored, with code 0 and no remark."""
        config = self._settings.config
        if self._templates is None or self._config is not config:
            self._config, self._templates = config, send_templates(config.region, config.trace_on)
        values = [result.message_id.encode(), b"%d" % queue_id, b"%d" % result.queue_offset]
        if transaction_id is not None:
            values.append(transaction_id.encode())
        which = 2 * (request.form is HeaderForm.BINARY) + (transaction_id is not None)
        frame: bytes = self._buffer.encode(self._templates[which], request.opaque, values)
        return frame


def send_templates(region: str, trace_on: bool) -> Templates:
    """Templates with the gaps message id, queue, offset and, in the second, transaction id."""

    def sample(form: HeaderForm, *, more: bool) -> AnswerTemplate:
        header = SendResponse(
            message_id="@ID@",
            queue_id=_NUMBERS[0],
            queue_offset=_NUMBERS[1],
            transaction_id="@TX@" if more else None,
            region=region,
            trace_on=trace_on,
        )
        gaps = ("@ID@", str(_NUMBERS[0]), str(_NUMBERS[1]), *(("@TX@",) if more else ()))
        return _cut(header, None, form, gaps)

    return _four(sample)


def pull_templates() -> Templates:
    """Templates with the gaps suggested broker, next, first and last offset and, in the second, flags of topic and
    group."""

    def sample(form: HeaderForm, *, more: bool) -> AnswerTemplate:
        header = PullResponse(
            suggested_broker_id=_NUMBERS[0],
            next_offset=_NUMBERS[1],
            min_offset=_NUMBERS[2],
            max_offset=_NUMBERS[3],
            topic_sys_flag=_NUMBERS[4] if more else None,
            group_sys_flag=_NUMBERS[5] if more else None,
        )
        return _cut(header, ReadStatus.FOUND.value, form, tuple(map(str, _NUMBERS[: 6 if more else 4])))

    return _four(sample)


def _four(sample: _Sample) -> Templates:
    return (
        sample(HeaderForm.JSON, more=False),
        sample(HeaderForm.JSON, more=True),
        sample(HeaderForm.BINARY, more=False),
        sample(HeaderForm.BINARY, more=True),
    )


def _cut(header: Header, remark: str | None, form: HeaderForm, gaps: tuple[str, ...]) -> AnswerTemplate:
    request = Command(code=0, opaque=_OPAQUE, form=form)
    reply = Reply(ResponseCode.SUCCESS, remark, header=header)
    text = encode_command(reply.to_command(request))[_HEAD_BYTES:]
    pieces, at = [], 0
    for gap in gaps:  # in field order: values set by operators come after the gaps
        found = text.index(gap.encode(), at)
        pieces.append(text[at : found - (4 if form is HeaderForm.BINARY else 0)])
        at = found + len(gap)
    if form is HeaderForm.JSON:
        before, _, tail = text[at:].rpartition(str(_OPAQUE).encode())
        return AnswerTemplate([*pieces, before, tail], False, 0)
    return AnswerTemplate([*pieces, text[at:]], True, _REMARK_AT + len((remark or "").encode()))
