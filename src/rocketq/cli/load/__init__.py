"""What `rocketq bench` is made of: requests built beforehand, connections that keep them in flight, and figures."""
