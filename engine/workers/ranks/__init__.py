"""One model over several devices: a worker's process is its rank 0, others follow it."""
