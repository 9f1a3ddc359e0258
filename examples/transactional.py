"""Change a database and send a message: both happen, or neither."""

import sqlite3

from rocketq.client import Message, Producer, TransactionListener, TransactionState

database = sqlite3.connect(":memory:", check_same_thread=False)
database.execute("create table payments (id text primary key)")


def execute(message, payment_id):
    """The local transaction; the message becomes visible if it commits."""
    if payment_id == "payment-2":
        return TransactionState.ROLLBACK
    with database:
        database.execute("insert into payments values (?)", (payment_id,))
    return TransactionState.COMMIT


def check(message):
    """Called by the broker when the outcome of `execute` is unknown, for example after a crash."""
    found = database.execute("select 1 from payments where id = ?", (message.keys[0],)).fetchone()
    return TransactionState.COMMIT if found else TransactionState.ROLLBACK


with Producer("payments", transaction=TransactionListener(execute, check)) as producer:
    for payment_id in ("payment-1", "payment-2"):
        result = producer.send_in_transaction(Message(topic="Payments", body=b"paid", keys=(payment_id,)), payment_id)
        print(payment_id, result.state.name)
