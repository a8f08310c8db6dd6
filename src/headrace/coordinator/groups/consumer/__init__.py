"""Groups of the new consumer protocol (KIP-848): the coordinator assigns, and members reconcile at their own pace."""
