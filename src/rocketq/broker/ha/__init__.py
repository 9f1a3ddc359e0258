"""A broker's part among masters and replicas."""
