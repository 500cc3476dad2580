"""The classic protocol of groups (JoinGroup, SyncGroup): its table of states and its state machine. Pure."""
