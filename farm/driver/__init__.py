"""On the head node: plan, schedule, dispatch, worker pool, progress, Prometheus."""
