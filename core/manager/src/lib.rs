//! Core of the live manager: decisions of the controller, and an agent's execution of orders.
//! Without sockets, clock or threads (sans-io).

pub mod agent;
pub mod controller;
mod error;
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

pub use error::ManagerError;
