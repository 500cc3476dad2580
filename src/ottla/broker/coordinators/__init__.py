"""Coordinators: the shell around state machines whose durable state is the log of an internal topic.

`runtime` hosts one shard per partition that this broker leads, of any kind; `groups` is the group coordinator on top.
"""
