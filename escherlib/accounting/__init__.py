"""What work was it: FLOP and bytes per operation, the workload's list of matrix products, the roofline."""
