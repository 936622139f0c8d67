"""Dead letters: send them back where they came from.

A letter itself says which topic that is, and the letters of a topic may have come from many, so only a key that reaches
every topic may send them.
"""

from __future__ import annotations

import msgspec

from esker.engine.commands import ReplayDeadLetters
from esker.engine.ids import from_ulid, to_ulid
from esker.engine.replies import Done
from esker.fronts.http.answers import ReplayedAnswer, encode
from esker.fronts.http.bodies import LETTERS_MAX, ReplayBody
from esker.fronts.http.calls import Answer, Call
from esker.fronts.http.endpoints.topics import named_topic
from esker.fronts.http.errors import expect, forbidden, invalid

_replay_decoder = msgspec.json.Decoder(ReplayBody)


async def replay_letters(call: Call) -> Answer:
    name = named_topic(call)
    if call.key.prefixes:
        raise forbidden("dead letters go to the topics they came from, and this key does not reach every topic")
    body = await call.json(_replay_decoder)
    if (body.ids is None) == (body.count is None):
        raise invalid("give either ids or count")
    most = len(body.ids or ()) if body.count is None else body.count
    if not 1 <= most <= LETTERS_MAX:
        raise invalid(f"1 to {LETTERS_MAX} letters at a time, not {most}")
    ids = None if body.ids is None else [_id(text) for text in body.ids]
    done = expect(Done, call.front.broker.handle(ReplayDeadLetters(name, ids, most)), name)
    return Answer(encode(ReplayedAnswer(name.decode(), done.count, [to_ulid(each) for each in done.missed])))


def _id(text: str) -> int:
    try:
        return from_ulid(text)
    except ValueError:
        raise invalid(f"{text[:64]!r} in ids is no id of a message") from None
