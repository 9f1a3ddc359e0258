"""Topics: the table, deletion, and the requests that administer them."""
