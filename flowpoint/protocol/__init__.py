"""The decisions of FlowPoint as pure state machines: events in, actions out. No await, no clock, no I/O."""
