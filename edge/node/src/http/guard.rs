//! [`Guard`]: who may ask, and who may write. A web page of another site, open in an operator's browser, may do neither.

use super::address::Token;
use super::answer::Refused;
use axum::http::{HeaderMap, Method, StatusCode, header};
use std::net::{IpAddr, SocketAddr};

/// Judges requests by their heads.
#[derive(Clone, Debug)]
pub struct Guard {
    loopback: bool,
    access: Access,
}

/// Who may use the interface. Reading is guarded like writing: it shows what every client keeps in the cell.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Access {
    /// Whoever is on this host.
    Open,
    Token(Token),
    /// On a network, and no token was given.
    Refused,
}

impl Guard {
    pub fn new(address: SocketAddr, token: Option<Token>) -> Guard {
        let loopback = address.ip().is_loopback();
        let access = match token {
            Some(token) => Access::Token(token),
            None if loopback => Access::Open,
            None => Access::Refused,
        };
        Guard { loopback, access }
    }

    /// For whoever is told how it is guarded.
    pub fn access(&self) -> &'static str {
        match self.access {
            Access::Open => "open",
            Access::Token(_) => "token",
            Access::Refused => "refused",
        }
    }

    /// Of everything that a browser can be made to ask for: whether it comes from our own page, or from no page at all.
    pub fn check(&self, method: &Method, headers: &HeaderMap) -> Result<(), Refused> {
        let host = text(headers, header::HOST.as_str());
        self.check_host(host)?;
        if let Some(origin) = text(headers, header::ORIGIN.as_str())
            && !is_same_site(origin, host)
        {
            return Err(Refused::forbidden("a page of another site may not ask this process"));
        }
        if *method == Method::GET || *method == Method::HEAD {
            return Ok(());
        }
        check_write(headers)
    }

    /// Of the interface: whether who asks may know and order. The page itself is no secret, and must be there to ask
    /// for the token.
    pub fn admit(&self, headers: &HeaderMap) -> Result<(), Refused> {
        let token = match &self.access {
            Access::Open => return Ok(()),
            Access::Token(token) => token,
            Access::Refused => {
                let sentence = "nothing is told or done here: this is not a loopback address, and the process was \
                                started without --http-token";
                return Err(Refused::forbidden(sentence));
            }
        };
        let given = text(headers, header::AUTHORIZATION.as_str());
        let given = given.and_then(|given| given.strip_prefix("Bearer "));
        match given {
            Some(given) if token.is(given.trim()) => Ok(()),
            Some(_) => Err(Refused(StatusCode::UNAUTHORIZED, "this is not the token".to_owned())),
            None => Err(Refused(StatusCode::UNAUTHORIZED, "this needs the token".to_owned())),
        }
    }

    /// Another site can have its own name point to this host, and would then pass for this one in a browser.
    fn check_host(&self, host: Option<&str>) -> Result<(), Refused> {
        let Some(host) = host else { return Err(Refused::bad("a request names its Host")) };
        if self.loopback && !is_loopback(host) {
            let sentence = "this is served on a loopback address: ask for localhost or 127.0.0.1";
            return Err(Refused::forbidden(sentence));
        }
        Ok(())
    }
}

fn check_write(headers: &HeaderMap) -> Result<(), Refused> {
    let site = text(headers, "sec-fetch-site");
    if site.is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return Err(Refused::forbidden("a page of another site may not ask this process"));
    }
    // A form or a plain script of another site cannot send these without asking first.
    if text(headers, "x-kumo") != Some("write") {
        return Err(Refused::forbidden("a write carries the header X-Kumo: write"));
    }
    let kind = text(headers, header::CONTENT_TYPE.as_str()).unwrap_or("");
    if kind.split(';').next().map(str::trim) != Some("application/json") {
        let sentence = "a write is application/json".to_owned();
        return Err(Refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, sentence));
    }
    Ok(())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// `http://HOST` or, behind something that speaks TLS, `https://HOST`.
fn is_same_site(origin: &str, host: Option<&str>) -> bool {
    let named = origin.strip_prefix("http://").or(origin.strip_prefix("https://"));
    named.is_some_and(|named| host.is_some_and(|host| named.eq_ignore_ascii_case(host)))
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, _port)) => name,
        None => host.rsplit_once(':').map_or(host, |(name, _port)| name),
    };
    let by_number = name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    by_number || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |&(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a header"))
        };
        pairs.iter().map(pair).collect()
    }

    fn status(guard: &Guard, method: Method, pairs: &[(&'static str, &str)]) -> u16 {
        let headers = headers(pairs);
        let judged = guard.check(&method, &headers).and_then(|()| guard.admit(&headers));
        judged.map_or_else(|refused| refused.0.as_u16(), |()| 200)
    }

    fn local() -> Guard {
        Guard::new(SocketAddr::from(([127, 0, 0, 1], 80)), None)
    }

    fn public(token: Option<&str>) -> Guard {
        let token = token.map(|token| Token::new(token).expect("a good token"));
        Guard::new(SocketAddr::from(([10, 0, 0, 1], 80)), token)
    }

    #[test]
    fn on_loopback_only_a_loopback_name_is_asked_for() {
        for host in ["127.0.0.1:19780", "localhost:19780", "LOCALHOST", "127.3.2.1", "[::1]:19780"] {
            assert_eq!(status(&local(), Method::GET, &[("host", host)]), 200, "{host}");
        }
        for host in ["evil.example:19780", "10.0.0.1", "localhost.evil.example", "127.0.0.1.evil.example", ""]
        {
            assert_eq!(status(&local(), Method::GET, &[("host", host)]), 403, "{host}");
        }
        assert_eq!(status(&local(), Method::GET, &[]), 400);
        let kumo = headers(&[("host", "kumo.example")]);
        assert_eq!(public(None).check(&Method::GET, &kumo), Ok(()), "on a network any name may be ours");
    }

    #[test]
    fn a_page_of_another_site_is_refused() {
        let host = ("host", "127.0.0.1:19780");
        let own = ("origin", "http://127.0.0.1:19780");
        let write = [host, ("x-kumo", "write"), ("content-type", "application/json")];
        let with = |more: &[(&'static str, &'static str)]| [&write[..], more].concat();
        assert_eq!(status(&local(), Method::POST, &with(&[own])), 200);
        assert_eq!(status(&local(), Method::POST, &with(&[own, ("sec-fetch-site", "same-origin")])), 200);
        for origin in ["http://evil.example", "null", "http://127.0.0.1:3000", "http://127.0.0.1"] {
            assert_eq!(status(&local(), Method::POST, &with(&[("origin", origin)])), 403, "{origin}");
            assert_eq!(status(&local(), Method::GET, &[host, ("origin", origin)]), 403, "{origin}");
        }
        for site in ["cross-site", "same-site"] {
            assert_eq!(status(&local(), Method::POST, &with(&[("sec-fetch-site", site)])), 403, "{site}");
        }
        assert_eq!(status(&local(), Method::POST, &[host, write[2]]), 403);
        assert_eq!(status(&local(), Method::POST, &[host, write[1], ("content-type", "text/plain")]), 415);
    }

    #[test]
    fn on_a_network_everything_needs_the_token() {
        let read = [("host", "10.0.0.1")];
        let write = [read[0], ("x-kumo", "write"), ("content-type", "application/json")];
        for (method, head) in [(Method::GET, &read[..]), (Method::HEAD, &read), (Method::POST, &write)] {
            let with = |given: &'static str| [head, &[("authorization", given)]].concat();
            let asks = |guard: &Guard, head: &[(&'static str, &str)]| status(guard, method.clone(), head);
            assert_eq!(asks(&public(None), head), 403);
            assert_eq!(asks(&public(None), &with("Bearer anything-at-all")), 403);
            let guard = public(Some("a-good-token"));
            assert_eq!(asks(&guard, head), 401);
            assert_eq!(asks(&guard, &with("Bearer a-bad-token")), 401);
            assert_eq!(asks(&guard, &with("a-good-token")), 401);
            assert_eq!(asks(&guard, &with("Bearer a-good-token")), 200);
        }
        let guards = [local(), public(None), public(Some("a-good-token"))];
        assert_eq!(guards.map(|guard| guard.access()), ["open", "refused", "token"]);
    }
}
