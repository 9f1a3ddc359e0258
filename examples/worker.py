"""Process jobs with retries; a job that fails too often becomes a dead letter that can be inspected and sent again."""

import threading

from rocketq.client import ConsumeFromWhere, Message, Producer, PushConfig, PushConsumer

done = threading.Event()


def process(messages, context):
    (job,) = messages
    print(f"{job.body.decode()}: attempt {job.reconsume_times + 1}")
    context.delay_level = 1  # the next attempt comes after a second
    if job.body == b"broken":
        raise ValueError("this job cannot be done")
    if job.body == b"flaky" and job.reconsume_times == 0:
        raise ConnectionError("try again later")
    if job.body == b"flaky":
        done.set()


with Producer("jobs") as producer:
    for body in (b"good", b"flaky", b"broken"):
        producer.send(Message(topic="Jobs", body=body))

config = PushConfig(from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, max_reconsume_times=3)
with PushConsumer("job-worker", process, config=config) as consumer:
    consumer.subscribe("Jobs")
    done.wait(60)
print("dead letters: rocketq tail %DLQ%job-worker --from earliest --no-follow")
