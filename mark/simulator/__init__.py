"""Virtual time: workloads, the request engine, and a cloud that boots, refuses and interrupts."""
