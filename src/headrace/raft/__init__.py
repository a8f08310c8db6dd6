"""The metadata quorum: a pure Raft node in KRaft's form, and a driver that persists, then sends, then applies."""
