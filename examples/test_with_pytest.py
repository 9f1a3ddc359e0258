"""Test code that uses messaging against a real broker: pytest examples/test_with_pytest.py"""

from rocketq.client import ConsumeFromWhere, Message, Producer, PullConfig, PullConsumer


def place_order(producer, order_id):
    """The code under test."""
    return producer.send(Message(topic="OrdersUnderTest", body=b"{}", tag="placed", keys=(order_id,)))


def test_an_order_is_announced(rocketq_cluster):
    addr = rocketq_cluster.name_server_addr
    with Producer("shop", name_servers=addr) as producer:
        place_order(producer, "order-1")

    config = PullConfig(from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    with PullConsumer("order-test", name_servers=addr, config=config) as consumer:
        consumer.subscribe("OrdersUnderTest")
        message = next(iter(consumer))
    assert (message.tag, message.keys) == ("placed", ("order-1",))
