//! The ledger on real databases.

mod both;
mod cluster;
mod outage;
mod world;
