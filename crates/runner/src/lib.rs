//! Pods as local processes: isolation, volumes, logs, exits.
