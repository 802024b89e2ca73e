//! The live manager without its edges: what the controller decides when, what an agent does with its orders. Sans-io.

pub mod agent;
pub mod controller;
pub mod export;
pub mod limited;
mod load;
pub mod managed;
pub mod planned;
pub mod problem;
pub mod question;
pub mod recording;
mod reload;
pub mod service;
pub mod settings;
pub mod shown;
pub mod store;
pub mod view;
pub mod wire;
