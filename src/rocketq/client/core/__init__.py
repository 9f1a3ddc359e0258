"""What decides, without sockets, clocks or threads: routes, queues, messages, progress."""
