//! The token file of an agent.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The token in a file, without white space around it: the kubelet replaces it every hour or so, so it is read each time.
///
/// # Errors
/// With the name of the file and what is wrong with it.
pub fn read_token(file: &Path) -> Result<String, String> {
    let most = tautline_wire::TOKEN_LEN_MAX;
    let mut text = String::new();
    File::open(file)
        .and_then(|opened| opened.take(most as u64 + 2).read_to_string(&mut text))
        .map_err(|error| format!("token file {}: {error}", file.display()))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(format!("token file {} is empty", file.display()));
    }
    if token.len() > most {
        return Err(format!("token file {} holds more than {most} bytes", file.display()));
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("token file {} holds something else than one token", file.display()));
    }
    Ok(token.to_owned())
}
